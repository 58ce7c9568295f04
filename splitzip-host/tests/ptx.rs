//! The PTX that ships, run by the interpreter: the conformance list without a GPU.

#[path = "support/interpreter.rs"]
mod interpreter;

use interpreter::Interpreter;
use splitzip_host::conformance::{self, members};

#[test]
fn first() {
    let interpreter = Interpreter::new("sm_80");
    for member in members() {
        let start = std::time::Instant::now();
        for case in conformance::cases(member) {
            let t = std::time::Instant::now();
            if let Err(e) = conformance::check(&interpreter, &case) {
                println!("{}: {e}", case.name);
                break;
            }
            if t.elapsed().as_millis() > 500 {
                println!("{} {:?}", case.name, t.elapsed());
            }
        }
        println!("{member} {:?}", start.elapsed());
    }
    let n: u64 = interpreter.lines().values().flat_map(|l| l.values()).sum();
    println!("{n} instructions");
}
