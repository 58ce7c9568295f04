#![no_main]

libfuzzer_sys::fuzz_target!(init: splitzip_fuzz::write_seeds("round_trip"), |data: &[u8]| splitzip_fuzz::keep("round_trip", data));
