//! The fourth executor: the launches of the CUDA executor, run by the PTX interpreter of `nvptx-builder` on any machine.
//!
//! Memory is as unkind as a device allows: every buffer lies far from all others and is as long as it must be, what nobody wrote is garbage and a
//! fault to read, inputs are read-only. An error of a launch is a fault with its lane and line.
#![allow(dead_code, reason = "each test uses a part of it")]

use nvptx_builder::interpret::{BlockOrder, LaunchError, Memory, MemoryError, Module, Options};
use splitzip_host::cuda::{DecodePagedWork, DecodeWork, DevicePool, EncodePagedWork, EncodeWork, PTX, Queue};
use splitzip_host::format::{FrameTensor, tensor_checksum, unpack, write};
use splitzip_host::paged::Paged;
use splitzip_host::{
    CodebookChoice, Cpu, Dtype, Error, Executor, Frame, FrameSpec, Histogram, Layout, Reference, Result,
};
use splitzip_kernels::dtype::{Bf16, E4m3, E5m2, Fp16};
use splitzip_kernels::kernels::histogram;
use splitzip_kernels::launch::{Launch, Programs, Source, Target};
use splitzip_kernels::tile::TAIL_BYTES;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// How often each line of each entry was run.
pub type Lines = BTreeMap<&'static str, BTreeMap<u32, u64>>;

/// The kernels of a target, interpreted.
pub struct Interpreter {
    target: &'static str,
    options: Options,
    /// Blocks of a launch that any number of blocks can do. Few, so that each has several turns.
    most_blocks: u64,
    modules: Mutex<HashMap<&'static str, Arc<Module>>>,
    lines: Mutex<Lines>,
}

impl Interpreter {
    /// The kernels that ship for `target`.
    pub fn new(target: &'static str) -> Interpreter {
        // Staged parts are read in pairs of words, and the second one may lie behind them: its bits are shifted out.
        let options = Options::default().unwritten_shared(true);
        Interpreter { target, options, most_blocks: 2, modules: Mutex::default(), lines: Mutex::default() }
    }

    /// The same with blocks in this order, so many of them alive at once.
    pub fn with_order(self, order: BlockOrder, resident: usize) -> Interpreter {
        let options = self.options.order(order).resident(resident).slice(64);
        Interpreter { options, ..self }
    }

    /// The same with at most so many blocks of a launch that any number of blocks can do.
    pub fn with_blocks(self, most_blocks: u64) -> Interpreter {
        Interpreter { most_blocks, ..self }
    }

    /// The same for damaged frames: two entries may then name one element, and which of them comes last nobody promises.
    pub fn for_damage(self) -> Interpreter {
        let options = self.options.unordered(true);
        Interpreter { options, ..self }
    }

    /// The same with other text for one entry, and a limit of instructions: a kernel that was broken on purpose may run for ever.
    pub fn with_text(
        self,
        entry: &'static str,
        text: &str,
        steps: u64,
    ) -> std::result::Result<Interpreter, String> {
        let module = Module::parse(text).map_err(|error| error.to_string())?;
        let options = self.options.steps(steps);
        let modules = Mutex::new(HashMap::from([(entry, Arc::new(module))]));
        Ok(Interpreter { options, modules, ..self })
    }

    /// What was run so far.
    pub fn lines(&self) -> Lines {
        self.lines.lock().unwrap().clone()
    }

    fn module(&self, entry: &'static str) -> Arc<Module> {
        let mut modules = self.modules.lock().unwrap();
        let read = || {
            let ptx = PTX.iter().find(|ptx| ptx.target == self.target && ptx.entry == entry);
            let text = ptx.unwrap_or_else(|| panic!("no PTX of {entry} for {}", self.target)).text;
            Arc::new(Module::parse(text).unwrap_or_else(|error| panic!("{entry}: {error}")))
        };
        modules.entry(entry).or_insert_with(read).clone()
    }
}

/// Memory, and the kernels that run on it.
pub struct Device<'i> {
    interpreter: &'i Interpreter,
    pub memory: RefCell<Memory>,
}

impl<'i> Device<'i> {
    pub fn new(interpreter: &'i Interpreter) -> Device<'i> {
        Device { interpreter, memory: RefCell::default() }
    }

    fn allocate(&self, bytes: u64) -> u64 {
        self.memory.borrow_mut().allocate(bytes as usize)
    }

    fn upload(&self, bytes: &[u8]) -> u64 {
        self.memory.borrow_mut().upload_read_only(bytes)
    }

    /// Bytes that depend on their address; not to be written to.
    fn upload_at(&self, bytes: u64, of: impl FnOnce(u64) -> Vec<u8>) -> Result<u64> {
        let mut memory = self.memory.borrow_mut();
        let address = memory.allocate(bytes as usize);
        memory.write(address, &of(address)).map_err(memory_error)?;
        Ok(address)
    }

    /// The frame that was encoded at an address.
    fn read_frame(&self, layout: &Layout, frame: u64) -> Result<Vec<u8>> {
        let dense = layout.dense_bytes as usize;
        let mut out = self.read(frame, dense)?;
        let words = number(&out[layout.static_bytes as usize..]);
        let end = dense + 4 * words as usize;
        if end as u64 > layout.max_frame_bytes {
            let reason = format!("the device counted {words} words, which cannot be");
            return Err(Error::Device { what: "encoding".to_owned(), reason });
        }
        out.extend(self.read(frame + dense as u64, end - dense)?);
        Ok(out)
    }

    /// Encodes from pools on the device.
    pub fn encode_paged(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<Vec<u8>> {
        let blocks = self.interpreter.most_blocks as u32;
        let work = EncodePagedWork::new("interpreter", spec, codebooks, from, pools, blocks)?;
        let memory = self.upload_at(work.memory_bytes(), |address| work.memory(address))?;
        let workspace = self.allocate(work.workspace_bytes());
        let frame = self.allocate(work.layout().max_frame_bytes);
        // SAFETY: nothing here is an address of this process; the device checks each of its own.
        unsafe {
            work.prepare(self, memory, workspace)?;
            work.run(self, memory, frame, workspace)?;
        }
        self.read_frame(work.layout(), frame)
    }

    /// Decodes into pools on the device; returns the status, and the checksums of tensors that were decoded whole.
    pub fn decode_paged(
        &self,
        spec: &FrameSpec,
        frame: &[u8],
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<(u32, Vec<(usize, u64)>)> {
        let work = DecodePagedWork::new("interpreter", spec, tokens, to, pools)?;
        let memory = self.upload_at(work.memory_bytes(), |address| work.memory(address))?;
        let (at, workspace) = (self.upload(frame), self.allocate(work.workspace_bytes()));
        let tensors = work.layout().tensors.len();
        let results = self.memory.borrow_mut().upload(&vec![0; 8 * (1 + tensors)]);
        // SAFETY: as above.
        unsafe { work.run(self, memory, at, frame.len() as u64, workspace, results, results + 8)? };
        let results = self.read(results, 8 * (1 + tensors))?;
        let sum = |&tensor: &usize| (tensor, number(&results[8 * (1 + tensor)..]));
        Ok((number(&results) as u32, work.whole_tensors().iter().map(sum).collect()))
    }

    /// Bytes that must have been written.
    fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        self.memory.borrow_mut().read(address, bytes).map_err(memory_error)
    }
}

/// Compares the checksum that decoding has added up with that of the elements, and of the frame.
fn check_sum(tensor: &FrameTensor<'_, '_>, output: &[u8], computed: u64) -> Result<()> {
    tensor.verify_checksum(computed)?;
    let found = tensor_checksum(tensor.layout().dtype, output);
    match found == computed {
        true => Ok(()),
        false => Err(Error::Checksum { tensor: 0, chunk: None, found, computed }),
    }
}

fn memory_error(error: MemoryError) -> Error {
    Error::Device { what: "memory".to_owned(), reason: error.to_string() }
}

fn launch_error(error: &LaunchError) -> Error {
    Error::Device { what: "a launch".to_owned(), reason: error.to_string() }
}

impl Queue for Device<'_> {
    unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        let (entry, slots) = (launch.entry.name, launch.slots.as_slice());
        let module = self.interpreter.module(entry);
        let most = if launch.entry.any_blocks { self.interpreter.most_blocks } else { u64::MAX };
        let blocks = launch.blocks.min(most);
        let (mut memory, options) = (self.memory.borrow_mut(), &self.interpreter.options);
        let report = module
            .launch(entry, blocks, slots, &mut memory, options)
            .map_err(|error| launch_error(&error))?;
        let mut lines = self.interpreter.lines.lock().unwrap();
        let lines = lines.entry(entry).or_default();
        for &(line, count) in report.lines().iter().filter(|(_, count)| *count != 0) {
            *lines.entry(line).or_default() += count;
        }
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        match bytes {
            0 => Ok(()),
            _ => self.memory.borrow_mut().copy(to, from, bytes as usize).map_err(memory_error),
        }
    }

    unsafe fn clear(&self, at: u64, bytes: u64) -> Result<()> {
        match bytes {
            0 => Ok(()),
            _ => self.memory.borrow_mut().fill(at, bytes as usize, 0).map_err(memory_error),
        }
    }
}

/// The number in the first 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// What decoding on the device gave, before anybody looks at the status.
pub struct Decoded {
    pub status: u32,
    pub sums: Vec<u64>,
    pub outputs: Vec<Vec<u8>>,
}

impl Interpreter {
    /// Runs the kernels on any bytes that have the length of a frame: what a device does to a damaged one.
    ///
    /// A damaged chunk need not be written: such bytes are `0xa5`.
    pub fn decode_bytes(&self, spec: &FrameSpec, bytes: &[u8], sums: bool) -> Result<Decoded> {
        let work = DecodeWork::new("interpreter", spec)?;
        let device = Device::new(self);
        let (frame, workspace) = (device.upload(bytes), device.allocate(work.workspace_bytes()));
        let tensors = &work.layout().tensors;
        let results = device.allocate(8 * (1 + tensors.len() as u64));
        device.memory.borrow_mut().fill(results, 8 * (1 + tensors.len()), 0).map_err(memory_error)?;
        let addresses: Vec<u64> = tensors.iter().map(|tensor| device.allocate(tensor.bytes)).collect();
        let sums_at = if sums { results + 8 } else { 0 };
        // SAFETY: nothing here is an address of this process; the device checks each of its own.
        unsafe {
            work.run(&device, frame, bytes.len() as u64, &addresses, workspace, results, sums_at)?;
        }
        let found = device.read(results, 8 * (1 + tensors.len()))?;
        let status = number(&found) as u32;
        let read = |(tensor, &address): (&splitzip_host::format::TensorLayout, &u64)| match status {
            0 => device.read(address, tensor.bytes as usize),
            _ => device.memory.borrow_mut().peek(address, tensor.bytes as usize).map_err(memory_error),
        };
        let outputs = tensors.iter().zip(&addresses).map(read).collect::<Result<_>>()?;
        Ok(Decoded { status, sums: found[8..].chunks_exact(8).map(number).collect(), outputs })
    }
}

impl Interpreter {
    /// Frames of several inputs, one after the other with one plan and one workspace.
    pub fn encode_again(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        inputs: &[&[&[u8]]],
    ) -> Result<Vec<Vec<u8>>> {
        let work = EncodeWork::new("interpreter", spec, codebooks)?;
        let device = Device::new(self);
        let (start, workspace) = (device.upload(work.start()), device.allocate(work.workspace_bytes()));
        // SAFETY: nothing here is an address of this process; the device checks each of its own.
        unsafe { work.prepare(&device, start, workspace)? };
        inputs.iter().map(|inputs| self.encode_on(&device, &work, start, workspace, inputs)).collect()
    }

    /// Encodes with a workspace that nobody has prepared, full of junk. What comes out is no frame, but something.
    pub fn encode_unprepared(&self, spec: &FrameSpec, inputs: &[&[u8]]) -> Result<Vec<u8>> {
        let work = EncodeWork::new("interpreter", spec, &[])?;
        let device = Device::new(self);
        let (start, workspace) = (device.upload(work.start()), device.allocate(work.workspace_bytes()));
        let frame = device.allocate(work.max_frame_bytes());
        for (at, bytes) in [(workspace, work.workspace_bytes()), (frame, work.max_frame_bytes())] {
            device.memory.borrow_mut().fill(at, bytes as usize, 0xa5).map_err(memory_error)?;
        }
        let addresses: Vec<u64> = inputs.iter().map(|input| device.upload(input)).collect();
        // SAFETY: as above.
        unsafe { work.run(&device, start, &addresses, frame, workspace)? };
        device.read(frame, work.max_frame_bytes() as usize)
    }

    fn encode_on(
        &self,
        device: &Device<'_>,
        work: &EncodeWork,
        start: u64,
        workspace: u64,
        inputs: &[&[u8]],
    ) -> Result<Vec<u8>> {
        let frame = device.allocate(work.max_frame_bytes());
        let addresses: Vec<u64> = inputs.iter().map(|input| device.upload(input)).collect();
        // SAFETY: as above.
        unsafe { work.run(device, start, &addresses, frame, workspace)? };
        device.read_frame(work.layout(), frame)
    }
}

impl Executor for Interpreter {
    fn name(&self) -> String {
        format!("interpreter ({})", self.target)
    }

    fn histogram(&self, dtype: Dtype, bytes: &[u8]) -> Result<Histogram> {
        if dtype == Dtype::Bytes || !bytes.len().is_multiple_of(dtype.bytes()) || bytes.is_empty() {
            return Reference.histogram(dtype, bytes);
        }
        let device = Device::new(self);
        let counts = device.allocate(2048);
        device.memory.borrow_mut().fill(counts, 2048, 0).map_err(memory_error)?;
        let (words, tail) = (device.upload(bytes), device.allocate(TAIL_BYTES));
        let (elements, length) = ((bytes.len() / dtype.bytes()) as u64, bytes.len() as u64);
        let samples = elements.div_ceil(1024);
        macro_rules! launch {
            ($dtype:ty) => {{
                // SAFETY: addresses of the device, which checks them.
                let arguments = unsafe {
                    histogram::Arguments::<$dtype> {
                        programs: Programs { programs: samples.min(8) },
                        words: Source::at(words, length),
                        elements,
                        samples,
                        counts: Target::at(counts, 2048),
                        tail: Target::at(tail, TAIL_BYTES),
                    }
                };
                arguments.launch()
            }};
        }
        let launch = match dtype {
            Dtype::Fp16 => launch!(Fp16),
            Dtype::E4m3 => launch!(E4m3),
            Dtype::E5m2 => launch!(E5m2),
            _ => launch!(Bf16),
        };
        // SAFETY: as above.
        unsafe { device.launch(&launch?)? };
        let counts: Vec<u64> = device.read(counts, 2048)?.chunks_exact(8).map(number).collect();
        Histogram::from_counts(dtype, &counts[..dtype.exponents()])
    }

    fn encode(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        inputs: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        write::check_encode(spec, codebooks, inputs, out)?;
        let [frame] = &self.encode_again(spec, codebooks, &[inputs])?[..] else { unreachable!("one input") };
        out[..frame.len()].copy_from_slice(frame);
        Ok(frame.len())
    }

    fn encode_paged(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        let device = Device::new(self);
        let pool = |pool: &&[u8]| DevicePool { address: device.upload(pool), bytes: pool.len() as u64 };
        let pools: Vec<DevicePool> = pools.iter().map(pool).collect();
        let encoded = device.encode_paged(spec, codebooks, from, &pools)?;
        out[..encoded.len()].copy_from_slice(&encoded);
        Ok(encoded.len())
    }

    fn decode_paged(
        &self,
        frame: &Frame<'_>,
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &mut [&mut [u8]],
    ) -> Result<()> {
        let device = Device::new(self);
        let pool = |pool: &&mut [u8]| {
            let address = device.memory.borrow_mut().upload(pool);
            DevicePool { address, bytes: pool.len() as u64 }
        };
        let on_device: Vec<DevicePool> = pools.iter().map(pool).collect();
        let (status, sums) =
            device.decode_paged(frame.spec(), frame.bytes(), tokens.clone(), to, &on_device)?;
        if status != 0 {
            Reference.decode_paged(frame, tokens, to, pools)?; // knows what is damaged
            let reason = "the device says that a chunk is damaged".to_owned();
            return Err(Error::Chunk { tensor: 0, chunk: 0, reason });
        }
        let outputs = Cpu::new().decode_to_vecs(frame)?;
        for (tensor, sum) in sums {
            check_sum(&frame.tensor(tensor)?, &outputs[tensor], sum)?;
        }
        for (pool, of) in on_device.iter().zip(pools.iter_mut()) {
            of.copy_from_slice(&device.read(pool.address, pool.bytes as usize)?);
        }
        Ok(())
    }

    fn decode(&self, frame: &Frame<'_>, outputs: &mut [&mut [u8]]) -> Result<()> {
        write::check_decode(frame.layout(), outputs)?;
        if frame.spec().flags.packed {
            return self.decode(&Frame::parse(&unpack(frame)?)?, outputs);
        }
        let decoded = self.decode_bytes(frame.spec(), frame.bytes(), true)?;
        if decoded.status != 0 {
            Reference.decode(frame, outputs)?; // knows what is damaged
            let reason = "the device says that a chunk is damaged".to_owned();
            return Err(Error::Chunk { tensor: 0, chunk: 0, reason });
        }
        for (number, (output, decoded_output)) in outputs.iter_mut().zip(&decoded.outputs).enumerate() {
            output.copy_from_slice(decoded_output);
            let tensor = frame.tensor(number)?;
            tensor.verify_chunks(0, output)?;
            check_sum(&tensor, output, decoded.sums[number])?;
        }
        Ok(())
    }

    fn decode_range(
        &self,
        frame: &Frame<'_>,
        tensor: usize,
        chunks: Range<u64>,
        output: &mut [u8],
    ) -> Result<()> {
        Cpu::new().decode_range(frame, tensor, chunks, output)
    }
}
