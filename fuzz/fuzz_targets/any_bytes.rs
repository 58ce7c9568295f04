#![no_main]

libfuzzer_sys::fuzz_target!(init: splitzip_fuzz::write_seeds("any_bytes"), |data: &[u8]| splitzip_fuzz::keep("any_bytes", data));
