use splitzip_host::*;
#[test]
fn smoke() {
    let file = std::fs::read("../tests/fixtures/smollm2_prose_160.safetensors").unwrap();
    let data = &file[5080..5080 + 61440 * 4];
    for n in [0usize, 1, 2, 3, 7, 1023, 1024, 1025, 2047, 4097, 30720, 30720 * 4] {
        for kind in 0..4 {
            let mut input: Vec<u8> = data[..2 * n].to_vec();
            match kind { 1 => input.iter_mut().enumerate().for_each(|(i, b)| *b = (i as u32).wrapping_mul(2654435761).to_le_bytes()[3]),
                2 => input.chunks_exact_mut(2).for_each(|c| c.copy_from_slice(&[0x12, 0x34])),
                3 => input.chunks_exact_mut(2).enumerate().for_each(|(i, c)| if i % 13 == 0 { c.copy_from_slice(&(i as u16).wrapping_mul(40503).to_le_bytes()) }), _ => {} }
            let spec = FrameSpec::new(vec![TensorSpec::new("k", Dtype::Bf16, Scheme::W4, &[n as u64])], Flags::CHECKSUMS);
            let a = Reference.encode_to_vec(&spec, &[], &[&input]).unwrap();
            let b = Cpu::new().encode_to_vec(&spec, &[], &[&input]).unwrap();
            assert_eq!(a.len(), b.len(), "{n} {kind}");
            if let Some(i) = (0..a.len()).find(|&i| a[i] != b[i]) { panic!("{n} {kind} at {i}: {:x?} {:x?} {:?}", &a[i..(i+8).min(a.len())], &b[i..(i+8).min(a.len())], spec.layout().unwrap()); }
            let out = Cpu::new().decode_to_vecs(&Frame::parse(&b).unwrap()).unwrap();
            assert!(out[0] == input, "{n} {kind} decode");
        }
    }
}
