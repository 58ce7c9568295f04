#![no_main]

libfuzzer_sys::fuzz_target!(init: splitzip_fuzz::write_seeds("header"), |data: &[u8]| splitzip_fuzz::keep("header", data));
