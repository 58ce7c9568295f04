//! What the benches of all executors measure.

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/smollm2_prose_160.safetensors");

/// The tensors of the fixture behind each other, again and again, up to so many bytes.
pub fn tiled(bytes: usize) -> Vec<u8> {
    let file = std::fs::read(FIXTURE).unwrap_or_else(|error| panic!("{FIXTURE}: {error}"));
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    file[8 + header..].iter().copied().cycle().take(bytes).collect()
}
