#![no_main]

libfuzzer_sys::fuzz_target!(init: splitzip_fuzz::write_seeds("damaged_frame"), |data: &[u8]| splitzip_fuzz::keep("damaged_frame", data));
