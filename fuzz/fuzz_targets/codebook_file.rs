#![no_main]

libfuzzer_sys::fuzz_target!(init: splitzip_fuzz::write_seeds("codebook_file"), |data: &[u8]| splitzip_fuzz::keep("codebook_file", data));
