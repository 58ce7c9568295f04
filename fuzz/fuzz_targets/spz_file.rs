#![no_main]

libfuzzer_sys::fuzz_target!(init: splitzip_fuzz::write_seeds("spz_file"), |data: &[u8]| splitzip_fuzz::keep("spz_file", data));
