//! Two processes and a socket between them: this one sends, and starts itself once more to receive.
//!
//! No transport for anybody but this measurement: NIXL and Mooncake are what frames travel with. A layer is a length and its bytes; the receiver says when the first layer and when the last
//! one is decoded.

use super::link::Shaped;
use super::sides::{self, Sender, Target};
use super::told::WireRow;
use super::{codings, failed};
use crate::arguments::BenchTransfer;
use crate::failure::{Failure, Result};
use splitzip_host::cuda::Cuda;
use splitzip_host::measure::Times;
use splitzip_host::measure::transfer::{LAYERS, TOKEN_BYTES};
use splitzip_host::{Bases, Error, Scheme};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the sender says in front of a transfer.
const RAW: u8 = b'r';
const CODED: u8 = b'c';
/// The receiver is to compare what has arrived.
const COMPARE: u8 = b'=';

/// The KV of both sides.
pub struct Request {
    pub tokens: u64,
    pub tile: Vec<u8>,
}

/// The speed of a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed(Option<f64>);

impl Speed {
    pub fn bytes_per_second(self) -> Option<f64> {
        self.0.map(|gigabits| gigabits * 1e9 / 8.0)
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(gigabits) => write!(f, "{gigabits} Gbit/s"),
            None => f.write_str("unshaped"),
        }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "unshaped" {
            return Ok(Speed(None));
        }
        let gigabits: Option<f64> = text.strip_suffix('g').unwrap_or(text).parse().ok();
        let gigabits = gigabits.filter(|speed| speed.is_finite() && *speed >= 0.001);
        let refuse = || "it must be unshaped, or a number of Gbit/s from 0.001 on, as in 25g".to_owned();
        gigabits.map(|speed| Speed(Some(speed))).ok_or_else(refuse)
    }
}

/// The other process, ended when it is dropped.
struct Receiving(Child);

impl Drop for Receiving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Rows of every speed, raw and with every scheme in turn.
pub fn measure(arguments: &BenchTransfer, cuda: Option<&Cuda>, request: &Request) -> Result<Vec<WireRow>> {
    let (_child, mut connection) = start(arguments)?;
    let sender = Sender::new(cuda, request).map_err(failed)?;
    let mut rows = Vec::new();
    let codings = [(Scheme::Stored, Bases::Chunk)].into_iter().chain(codings(&arguments.schemes));
    let codings: Vec<(Scheme, Bases)> = codings.collect();
    for &speed in &arguments.links {
        // The first one of each is compared; it warms up as well.
        for &(scheme, keys) in &codings {
            once(&sender, &mut connection, request, (scheme, keys), (speed, true))?;
        }
        // All of them in turn, so that whatever else the machine does meets them alike.
        let mut runs = vec![Vec::new(); codings.len()];
        for _ in 0..arguments.runs {
            for (coding, runs) in codings.iter().zip(&mut runs) {
                runs.push(once(&sender, &mut connection, request, *coding, (speed, false))?);
            }
        }
        let raw_bytes = LAYERS * request.tokens * TOKEN_BYTES;
        let mut plain = None;
        for (&(scheme, keys), runs) in codings.iter().zip(runs) {
            let times = |of: fn(&Once) -> f64| {
                let mut all = runs.iter().map(of);
                Times::of_runs(runs.len() as u32, &mut || Ok(all.next().unwrap_or(f64::NAN))).map_err(failed)
            };
            let (first, last) = (times(|run| run.first)?, times(|run| run.last)?);
            let plain = *plain.get_or_insert(last.median());
            let sent = runs.first().map_or(0, |run| run.bytes);
            rows.push(WireRow::new(speed, (scheme, keys), (raw_bytes, sent), (&first, &last), plain));
        }
    }
    Ok(rows)
}

/// Starts the receiver and connects to it.
fn start(arguments: &BenchTransfer) -> Result<(Receiving, TcpStream)> {
    let program = std::env::current_exe().map_err(|error| Failure::Failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["bench", "transfer", "--receive", "127.0.0.1:0"]);
    command.arg("--device").arg(arguments.device.to_string());
    command.args(arguments.size.map(|size| format!("--size={}", size.0)));
    command.args(arguments.data.iter().flat_map(|path| ["--data".as_ref(), path.as_os_str()]));
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child =
        Receiving(started.map_err(|error| Failure::Failed(format!("cannot start the receiver: {error}")))?);
    let mut line = String::new();
    let said = child.0.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    let address = line.trim();
    if !matches!(said, Some(Ok(1..))) || address.is_empty() {
        return Err(Failure::Failed(
            "the receiver ended before it listened; what it met is above".to_owned(),
        ));
    }
    let connection = TcpStream::connect(address).and_then(tuned);
    let connection =
        connection.map_err(|error| Failure::Failed(format!("cannot reach the receiver: {error}")))?;
    Ok((child, connection))
}

fn tuned(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// One transfer: seconds until the first and the last layer were decoded, and bytes on the wire.
#[derive(Clone, Copy)]
struct Once {
    first: f64,
    last: f64,
    bytes: u64,
}

fn once(
    sender: &Sender,
    connection: &mut TcpStream,
    request: &Request,
    (scheme, keys): (Scheme, Bases),
    (speed, compare): (Speed, bool),
) -> Result<Once> {
    let io = |error: std::io::Error| Failure::Failed(format!("the transfer to the other process: {error}"));
    let mut replies = connection.try_clone().map_err(io)?;
    let mode = if scheme == Scheme::Stored { RAW } else { CODED };
    connection.write_all(&[mode, if compare { COMPARE } else { 0 }]).map_err(io)?;
    expect(&mut replies, b"go")?;
    let start = Instant::now();
    let waiting = std::thread::Builder::new()
        .name("replies".to_owned())
        .spawn(move || expect(&mut replies, b"1st").map(|()| start.elapsed().as_secs_f64()));
    let waiting = waiting.map_err(io)?;
    let mut link = Shaped::new(&*connection, speed.bytes_per_second());
    let mut sending = sender.start(request, scheme, keys).map_err(failed)?;
    let mut bytes = 0;
    for _ in 0..LAYERS {
        let mut send = |pieces: &[&[u8]]| {
            let length: usize = pieces.iter().map(|piece| piece.len()).sum();
            bytes += length as u64;
            link.write_all(&(length as u64).to_le_bytes())?;
            pieces.iter().try_for_each(|piece| link.write_all(piece)).map_err(Error::Io)
        };
        sending.next(&mut send).map_err(failed)?;
    }
    link.flush().map_err(io)?;
    let first = waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    expect(connection, b"end")?;
    let last = start.elapsed().as_secs_f64();
    sending.finish().map_err(failed)?;
    if compare {
        expect(connection, b"same")?;
    }
    Ok(Once { first, last, bytes })
}

/// Waits for a word of the other side.
fn expect(from: &mut TcpStream, word: &[u8]) -> Result {
    let mut found = vec![0; word.len()];
    let read = from.read_exact(&mut found);
    read.map_err(|error| Failure::Failed(format!("the other process has gone, or hangs: {error}")))?;
    if found == word {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&found).into_owned();
    Err(Failure::Failed(format!(
        "the other process received other KV than was sent ({said:?}); please report this"
    )))
}

/// The other process: receives until the connection ends.
pub fn receive(address: &str, cuda: Option<&Cuda>, request: &Request) -> Result {
    let io = |error: std::io::Error| Failure::Failed(format!("receiving: {error}"));
    let mut target = Target::new(cuda, request).map_err(failed)?;
    let listener = TcpListener::bind(address).map_err(io)?;
    println!("{}", listener.local_addr().map_err(io)?);
    let (stream, _) = listener.accept().map_err(io)?;
    let stream = tuned(stream).map_err(io)?;
    let mut words = stream.try_clone().map_err(io)?;
    let mut incoming = stream;
    loop {
        let mut start = [0; 2];
        match incoming.read_exact(&mut start) {
            Ok(()) => {}
            // The sender is done.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(io(error)),
        }
        let [mode, compare] = start;
        if compare == COMPARE {
            target.spoil(cuda).map_err(failed)?;
        }
        words.write_all(b"go").map_err(io)?;
        let mut from = BufReader::with_capacity(1 << 20, &incoming);
        let from = std::cell::RefCell::new(&mut from);
        let read = |bytes: &mut [u8]| from.borrow_mut().read_exact(bytes).map_err(Error::Io);
        let mut sizes = || {
            let mut length = [0; 8];
            read(&mut length)?;
            let length = u64::from_le_bytes(length);
            if length > sides::layer_room(request) {
                return Err(Error::Io(std::io::Error::other(format!("a layer of {length} bytes is none"))));
            }
            Ok(length)
        };
        let mut first = || words.write_all(b"1st").map_err(Error::Io);
        let received = target.receive(request, mode == RAW, &mut sizes, &mut { read }, &mut first);
        received.map_err(failed)?;
        words.write_all(b"end").map_err(io)?;
        if compare == COMPARE {
            let is_right = target.is_right(cuda, request).map_err(failed)?;
            words.write_all(if is_right { b"same" } else { b"diff" }).map_err(io)?;
        }
    }
}
