//! The committed PTX, run without a GPU: the machine code itself, on every length and shape, beside naive code.

mod support;

#[path = "support/ptx.rs"]
mod ptx;

use nvptx_builder::interpret::{BlockOrder, Memory, Module, Options};
use own_kernels::saxpy;
use splitzip_kernels::launch::{Launch, Source, Target};
use support::machine::{Machine, run_all};

/// The shortest way: one kernel, one launch.
#[test]
fn three_elements_of_saxpy() {
    let module = Module::parse(&ptx::text("sm_90", "saxpy").unwrap()).unwrap();
    let mut memory = Memory::new();
    let x = memory.upload(&[1f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
    let y = memory.upload(&[10f32, 20.0, 30.0].map(f32::to_le_bytes).concat());
    // SAFETY: 12 bytes are there, in the memory of the interpreter.
    let (from, to) = unsafe { (Source::at(x, 12), Target::at(y, 12)) };
    let launch = saxpy::Arguments { strips: 3, a: 2.0, x: from, y: to }.launch().unwrap();
    let (entry, slots) = (launch.entry.name, launch.slots.as_slice());
    module.launch(entry, launch.blocks, slots, &mut memory, &Options::default()).unwrap();
    assert_eq!(memory.read(y, 12).unwrap(), [12f32, 24.0, 36.0].map(f32::to_le_bytes).concat());
}

const GUARD_BYTE: u8 = 0xa5;

/// The interpreter, with the PTX of one target.
struct Interpreter {
    target: &'static str,
    options: Options,
    memory: Memory,
    /// Where memory is that `put` has shifted, and by how much.
    shifted: Vec<(u64, usize)>,
}

impl Interpreter {
    fn new(target: &'static str, options: Options) -> Interpreter {
        Interpreter { target, options, memory: Memory::new(), shifted: Vec::new() }
    }
}

impl Machine for Interpreter {
    fn put(&mut self, bytes: &[u8], shift: usize) -> Result<u64, String> {
        let whole = [&vec![GUARD_BYTE; shift], bytes].concat();
        let address = self.memory.upload(&whole) + shift as u64;
        self.shifted.push((address, shift));
        Ok(address)
    }

    /// What lies behind the bytes is out of bounds for the interpreter; what lies in front of them is looked at here.
    fn get(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>, String> {
        let found = self.shifted.iter().find(|(shifted, _)| *shifted == address);
        let shift = found.map_or(0, |(_, shift)| *shift);
        let whole =
            self.memory.read(address - shift as u64, shift + bytes).map_err(|error| error.to_string())?;
        if whole[..shift].iter().any(|&byte| byte != GUARD_BYTE) {
            return Err(format!("a kernel has written in front of a buffer of {bytes} bytes"));
        }
        Ok(whole[shift..].to_vec())
    }

    fn run(&mut self, launch: &Launch) -> Result<(), String> {
        let module =
            Module::parse(&ptx::text(self.target, launch.entry.name)?).map_err(|error| error.to_string())?;
        module
            .launch(
                launch.entry.name,
                launch.blocks,
                launch.slots.as_slice(),
                &mut self.memory,
                &self.options,
            )
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    fn clear(&mut self) {
        self.memory = Memory::new();
        self.shifted.clear();
    }
}

fn check(target: &'static str, options: Options) {
    let (runs, failures) = run_all(&mut Interpreter::new(target, options));
    assert_eq!(failures, <[&str; 0]>::default(), "{target}");
    assert!(runs.iter().all(|(_, runs)| *runs > 20), "{runs:?}");
}

#[test]
fn the_ptx_for_sm_80_computes_what_naive_code_does() {
    check("sm_80", Options::default());
}

#[test]
fn the_ptx_for_sm_90_computes_what_naive_code_does() {
    check("sm_90", Options::default());
}

/// Blocks and warps in an order that no kernel may count on.
#[test]
fn the_order_of_blocks_and_warps_does_not_matter() {
    check("sm_90", Options::default().order(BlockOrder::Descending));
    check("sm_90", Options::default().order(BlockOrder::Random(1)).resident(3).slice(16));
}

/// The second `each_warp` of `row_maximum` reads what all warps have written in the first. Without the barrier between them, the
/// interpreter says so; a GPU would be right most of the time.
#[test]
fn a_missing_barrier_is_found() {
    let text = ptx::text("sm_90", "row_maximum").unwrap();
    let text = text.replacen("bar.sync", "// bar.sync", 1);
    let module = Module::parse(&text).unwrap();
    let mut memory = Memory::new();
    let values = memory.upload(&[0; 4 * 2048]);
    let maximum = memory.allocate(4);
    let matrix = 1 << 32 | 2048;
    let error = module
        .launch("row_maximum", 1, &[matrix, values, maximum, 0], &mut memory, &Options::default())
        .unwrap_err();
    assert!(error.to_string().contains("ld.shared"), "{error}");
}
