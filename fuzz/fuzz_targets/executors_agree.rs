#![no_main]

libfuzzer_sys::fuzz_target!(init: splitzip_fuzz::write_seeds("executors_agree"), |data: &[u8]| splitzip_fuzz::keep("executors_agree", data));
