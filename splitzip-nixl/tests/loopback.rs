//! Two processes over the loopback: this test starts itself again as the sender. NIXL must be there; `cargo xtask transfer` brings it and sets what finds it, and there its
//! absence fails. Without it this says loudly that nothing was tested.

use splitzip_host::{Cpu, Dtype, Executor, Flags, FrameSpec, Scheme, TensorSpec};
use splitzip_nixl::{Error, Receiver, ReceiverOptions, Sender, SenderOptions};
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LAYERS: u32 = 12;
const TIMEOUT: Duration = Duration::from_secs(5);
const SHAPE: [u64; 2] = [512, 64];
const ROLE: &str = "SPLITZIP_NIXL_SENDER";

fn form(scheme: Scheme) -> FrameSpec {
    let tensor = |name| TensorSpec::new(name, Dtype::Bf16, scheme, &SHAPE);
    FrameSpec { layout_id: 7, ..FrameSpec::new(vec![tensor("k"), tensor("v")], Flags::CHECKSUMS) }
}

/// Words whose exponents are those of normal numbers, near enough.
fn tensor(layer: u32, part: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(2 * layer + part));
    let mut word = || {
        let exponent = 120 + u16::try_from(random.u32(..).leading_zeros().min(7)).unwrap_or(0);
        exponent << 7 | random.u16(..) & 0x807f
    };
    (0..SHAPE[0] * SHAPE[1]).flat_map(|_| word().to_le_bytes()).collect()
}

fn slot_bytes() -> usize {
    form(Scheme::Stored)
        .layout()
        .unwrap()
        .max_frame_bytes
        .max(form(Scheme::W2x3).layout().unwrap().max_frame_bytes) as usize
}

/// What the other process does: `wrong` announces another layout, `slow` takes its time, `dies` ends in the middle of a transfer.
#[test]
#[ignore = "the other process of the tests below"]
fn sender() {
    let Ok(role) = env::var(ROLE) else { panic!("{ROLE} says what to do; the other tests start this one") };
    let (how, address) = role.split_once(' ').unwrap();
    let mut sender =
        Sender::connect("sender", address, SenderOptions { buffers: 2, timeout: TIMEOUT }).unwrap();
    let schemes =
        if how == "well" { vec![Scheme::Stored, Scheme::W2x3, Scheme::W4] } else { vec![Scheme::W2x3] };
    for scheme in schemes {
        let layout_id = if how == "wrong" { 8 } else { 7 };
        let layers = vec![FrameSpec { layout_id, ..form(scheme) }; LAYERS as usize];
        let result = sender.transfer(&layers).and_then(|mut transfer| {
            for layer in 0..LAYERS {
                if how == "dies" && layer == 3 {
                    std::process::abort();
                }
                if how == "slow" {
                    std::thread::sleep(Duration::from_millis(100));
                }
                transfer.send(layer, &Cpu::new(), &[], &[&tensor(layer, 0), &tensor(layer, 1)])?;
            }
            transfer.finish()
        });
        match result {
            Ok(bytes) => println!("sent {bytes}"),
            Err(error) => println!("error {error}"),
        }
    }
}

struct Other(Child);

impl Other {
    fn start(how: &str, address: &str) -> Other {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "sender", "--nocapture"]).env(ROLE, format!("{how} {address}"));
        Other(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// The lines that it says about transfers. (The first one stands behind what the harness has written.)
    fn said(&mut self) -> Vec<String> {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        let words = ["sent ", "error "];
        let found =
            lines.filter_map(|line| words.iter().find_map(|word| Some(line[line.find(word)?..].to_owned())));
        let all = found.collect();
        let _ = self.0.wait();
        all
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `None`, loudly, where there is no NIXL.
fn receiver(layout_id: Option<u64>) -> Option<Receiver> {
    let options =
        ReceiverOptions { slots: 2, layout_id, timeout: TIMEOUT, ..ReceiverOptions::new(slot_bytes()) };
    match Receiver::new("receiver", options) {
        Ok(receiver) => Some(receiver),
        Err(Error::NoLibrary) if env::var_os("SPLITZIP_REQUIRE_TRANSFER").is_none() => {
            eprintln!("SKIPPED: {}; NOTHING was sent (`cargo xtask transfer` brings it)", Error::NoLibrary);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn receive(receiver: &mut Receiver, mut slow: impl FnMut(u32)) -> splitzip_nixl::Result<u64> {
    let mut seen = vec![false; LAYERS as usize];
    let bytes = receiver.accept(4 * TIMEOUT)?.receive(|layer, frame| {
        let found = Cpu::new().decode_to_vecs(frame)?;
        assert_eq!(found, [tensor(layer, 0), tensor(layer, 1)], "layer {layer}");
        assert!(!std::mem::replace(&mut seen[layer as usize], true));
        slow(layer);
        Ok(())
    })?;
    assert!(seen.iter().all(|&seen| seen));
    Ok(bytes)
}

#[test]
fn layers_arrive_bit_for_bit() {
    let Some(mut receiver) = receiver(Some(7)) else { return };
    let mut other = Other::start("well", receiver.address());
    let received: Vec<u64> = (0..3).map(|_| receive(&mut receiver, |_| ()).unwrap()).collect();
    assert_eq!(other.said(), received.iter().map(|bytes| format!("sent {bytes}")).collect::<Vec<_>>());
    assert!(received[1] * 13 < received[0] * 10, "{received:?}");
    assert_eq!(receiver.ignored(), 0);
}

#[test]
fn another_layout_is_refused_before_anything_is_sent() {
    let Some(mut receiver) = receiver(Some(7)) else { return };
    let mut other = Other::start("wrong", receiver.address());
    let said = other.said();
    assert!(
        said.len() == 1 && said[0].contains("its layout is 0x8, and this side takes 0x7 only"),
        "{said:?}"
    );
    assert!(matches!(receiver.accept(Duration::from_millis(10)), Err(Error::Timeout(_))));
}

#[test]
fn a_receiver_that_fails_says_so_and_goes_on() {
    let Some(mut receiver) = receiver(None) else { return };
    let mut other = Other::start("slow", receiver.address());
    let bad = splitzip_host::Error::Count { what: "outputs", expected: 2, got: 1 };
    let mut bad = Some(bad);
    let failed = receiver
        .accept(4 * TIMEOUT)
        .unwrap()
        .receive(|layer, _| if layer == 2 { Err(bad.take().unwrap()) } else { Ok(()) });
    assert!(matches!(failed, Err(Error::Frame { layer: 2, .. })), "{failed:?}");
    let said = other.said();
    assert!(said.len() == 1 && said[0].contains("the other side failed: layer 2"), "{said:?}");
    let mut other = Other::start("slow", receiver.address());
    receive(&mut receiver, |_| ()).unwrap();
    assert_eq!(other.said().len(), 1);
}

#[test]
fn a_transfer_that_nobody_wants_is_refused() {
    let Some(mut receiver) = receiver(None) else { return };
    let mut other = Other::start("slow", receiver.address());
    receiver.accept(4 * TIMEOUT).unwrap().refuse("not today").unwrap();
    assert_eq!(other.said(), ["error the receiver refused: not today"]);
}

#[test]
fn a_sender_that_dies_is_an_error() {
    let Some(mut receiver) = receiver(None) else { return };
    let _other = Other::start("dies", receiver.address());
    let began = Instant::now();
    let error = receive(&mut receiver, |_| ()).unwrap_err();
    assert!(matches!(error, Error::PeerLost(_) | Error::Timeout(_) | Error::Nixl { .. }), "{error:?}");
    assert!(began.elapsed() < 4 * TIMEOUT);
    assert!(receiver.accept(Duration::from_millis(10)).is_err());
}

#[test]
fn a_receiver_that_is_gone_is_an_error() {
    let Some(mut receiver) = receiver(None) else { return };
    let mut other = Other::start("slow", receiver.address());
    drop(receiver.accept(4 * TIMEOUT).unwrap());
    let said = other.said();
    assert_eq!(said, ["error the receiver refused: the receiver does not want it"]);
    let mut other = Other::start("slow", receiver.address());
    let incoming = receiver.accept(4 * TIMEOUT).unwrap();
    std::mem::forget(incoming);
    drop(receiver);
    let said = other.said();
    assert!(said.len() == 1 && said[0].starts_with("error the other side is lost"), "{said:?}");
}

/// The words of `other_side.py`.
fn words(layer: u32, part: u32) -> Vec<u8> {
    let elements = 0..(SHAPE[0] * SHAPE[1]) as u32;
    elements.flat_map(|i| (0x3f80 + ((i * 37 + 5 * layer + part) % 512) as u16).to_le_bytes()).collect()
}

/// The other side in Python. `None`, loudly, where no interpreter is named that has `splitzip` and NIXL.
fn python(arguments: &[&str]) -> Option<Other> {
    let Some(python) = env::var_os("SPLITZIP_PYTHON") else {
        assert!(env::var_os("SPLITZIP_REQUIRE_TRANSFER").is_none(), "SPLITZIP_PYTHON names no interpreter");
        eprintln!(
            "SKIPPED: SPLITZIP_PYTHON names no interpreter, so NOTHING was sent between the languages (`cargo xtask transfer` does)"
        );
        return None;
    };
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/other_side.py")).args(arguments);
    // What finds the library for this program is not for the interpreter, which finds its own.
    command.env_remove("LD_LIBRARY_PATH").env_remove("NIXL_PLUGIN_DIR");
    Some(Other(command.stdout(Stdio::piped()).spawn().unwrap()))
}

#[test]
fn a_receiver_in_python_takes_what_this_sends() {
    let Some(mut other) = python(&["receive"]) else { return };
    let mut lines = BufReader::new(other.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("address ").map(str::to_owned)).unwrap();
    let mut sender =
        Sender::connect("sender", &address, SenderOptions { buffers: 2, timeout: TIMEOUT }).unwrap();
    let mut transfer = sender.transfer(&vec![form(Scheme::W2x3); LAYERS as usize]).unwrap();
    for layer in (0..LAYERS).rev() {
        transfer.send(layer, &Cpu::new(), &[], &[&words(layer, 0), &words(layer, 1)]).unwrap();
    }
    let bytes = transfer.finish().unwrap();
    let said = lines.find(|line| line.starts_with("received")).unwrap();
    assert_eq!(said, format!("received {LAYERS} {bytes} {{}}"));
}

#[test]
fn a_sender_in_python_sends_what_this_takes() {
    let Some(mut receiver) = receiver(Some(7)) else { return };
    let address = receiver.address().to_owned();
    let Some(mut other) = python(&["send", &address]) else { return };
    let incoming = receiver.accept(4 * TIMEOUT).unwrap();
    assert_eq!(incoming.layers(), vec![form(Scheme::W2x3); LAYERS as usize]);
    let bytes = incoming.receive(|layer, frame| {
        assert_eq!(Cpu::new().decode_to_vecs(frame)?, [words(layer, 0), words(layer, 1)], "layer {layer}");
        Ok(())
    });
    assert_eq!(other.said(), [format!("sent {}", bytes.unwrap())]);
}

#[test]
fn what_callers_do_wrong() {
    if receiver(None).is_none() {
        return;
    }
    assert!(matches!(Sender::connect("s", "{}", SenderOptions::default()), Err(Error::Argument(_))));
    let none = ReceiverOptions { slots: 0, ..ReceiverOptions::new(1) };
    assert!(matches!(Receiver::new("r", none), Err(Error::Argument(_))));
}

#[test]
fn without_nixl_there_is_an_error_and_no_abort() {
    if splitzip_nixl::is_available() {
        // The same program where the library cannot be found.
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "without_nixl_there_is_an_error_and_no_abort"])
            .env_remove("LD_LIBRARY_PATH");
        assert!(command.status().unwrap().success());
        return;
    }
    let error = Receiver::new("r", ReceiverOptions::new(1 << 20)).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NoLibrary) && error.to_string().contains("LD_LIBRARY_PATH"));
}
