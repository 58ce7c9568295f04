//! The interpreter, on small texts: what instructions compute, and every fault that it finds.

mod faults;
mod instructions;
mod shipped;
mod synchronise;

use nvptx_builder::interpret::{Fault, LaunchError, Memory, Module, Options, ParseError};

/// An entry `k` with registers, its body, and 64-bit parameters `p0`, `p1`, ... as many as given.
fn text(threads: u32, parameters: usize, body: &str) -> String {
    let parameters: Vec<String> = (0..parameters).map(|number| format!(".param .u64 p{number}")).collect();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({})\n.reqntid {threads}, 1, 1\n{{\n\
         .reg .pred %p<8>;\n.reg .b16 %rs<8>;\n.reg .b32 %r<32>;\n.reg .f32 %f<8>;\n.reg .b64 %rd<32>;\n{body}\n}}\n",
        parameters.join(", ")
    )
}

/// What loads `p0` into `%rd0` and makes `%rd1` the address of this thread's word behind it; `%r0` is the thread.
const OWN_WORD: &str =
    "ld.param.u64 %rd0, [p0];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %rd1, %r0, 4;\nadd.s64 %rd1, %rd0, %rd1;\n";

fn parse(body: &str) -> Result<Module, ParseError> {
    Module::parse(&text(32, 1, body))
}

/// Runs a body for one block of so many threads on a buffer; returns the buffer.
fn run_with(threads: u32, body: &str, buffer: &[u8], options: &Options) -> Result<Vec<u8>, LaunchError> {
    let module = Module::parse(&text(threads, 1, body)).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new();
    let address = memory.upload(buffer);
    module.launch("k", 1, &[address], &mut memory, options)?;
    Ok(memory.peek(address, buffer.len()).unwrap())
}

fn run(threads: u32, body: &str, buffer: &[u8]) -> Result<Vec<u8>, LaunchError> {
    run_with(threads, body, buffer, &Options::default())
}

/// The fault of a body for one block.
fn fault(threads: u32, body: &str, bytes: usize) -> Fault {
    match run(threads, body, &vec![0; bytes]) {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("{other:?}"),
    }
}

/// The words of 32 threads that store `%r9` after a body.
fn words(body: &str) -> Vec<u32> {
    let body = format!("{OWN_WORD}{body}\nst.global.u32 [%rd1], %r9;\nret;");
    let bytes = run(32, &body, &[0; 128]).unwrap_or_else(|error| panic!("{error}"));
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}
