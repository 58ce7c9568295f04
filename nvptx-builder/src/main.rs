//! cli
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mut b = nvptx_builder::Build::new(&a[1]);
    for t in &a[3..] { b = b.target(t.clone()); }
    match b.run() { Ok(e) => nvptx_builder::compile::write(&e, std::path::Path::new(&a[2])).unwrap(), Err(e) => { eprintln!("error: {e}"); std::process::exit(1) } }
}
