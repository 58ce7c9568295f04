//! The memory of the device: allocations far from each other, each byte of which knows whether it was written.

use super::error::{FaultKind, MemoryError, Space};
use super::order::{self, Race, Touch, Who};

/// An allocation, or the shared memory of a block.
pub(super) struct Region {
    pub space: Space,
    pub base: u64,
    pub bytes: Vec<u8>,
    /// 1 where a byte was written.
    known: Vec<u8>,
    touches: Vec<Touch>,
    writable: bool,
    live: bool,
    /// Whether bytes that nobody wrote may be read.
    lenient: bool,
    /// When it became what it is: accesses before were of another block.
    fresh: u32,
}

/// What bytes are that nobody has written.
fn garbage(place: usize) -> u8 {
    (place as u32).wrapping_mul(0x9E37_79B1).to_le_bytes()[3] ^ 0xa5
}

impl Region {
    pub fn new(space: Space, base: u64, bytes: usize) -> Region {
        Region {
            space,
            base,
            bytes: (0..bytes).map(garbage).collect(),
            known: vec![0; bytes],
            touches: Vec::new(),
            writable: true,
            live: true,
            lenient: false,
            fresh: 0,
        }
    }

    /// Makes it fresh for a block, with garbage that is another one for each `seed`.
    pub fn forget(&mut self, seed: u64, lenient: bool, now: u32) {
        let seed = (seed as usize).wrapping_mul(0x0100_0193);
        self.bytes.iter_mut().enumerate().for_each(|(place, byte)| *byte = garbage(place.wrapping_add(seed)));
        self.known.fill(0);
        (self.lenient, self.fresh) = (lenient, now);
    }

    fn describe(&self, address: u64) -> String {
        let (base, length) = (self.base, self.bytes.len());
        match (self.live, address.checked_sub(base)) {
            (false, _) => format!("the allocation of {length} bytes at {base:#x} was freed"),
            (true, Some(offset)) => format!("byte {offset} of an allocation of {length} bytes at {base:#x}"),
            (true, None) => {
                format!("{} bytes before an allocation of {length} bytes at {base:#x}", base - address)
            }
        }
    }

    /// The place of an access.
    #[inline]
    fn place(&self, address: u64, bytes: u32) -> Result<usize, Box<FaultKind>> {
        let offset = address.wrapping_sub(self.base);
        let end = offset.checked_add(u64::from(bytes));
        if !self.live || end.is_none_or(|end| end > self.bytes.len() as u64) {
            let (space, nearest) = (self.space, self.describe(address));
            return Err(Box::new(FaultKind::OutOfBounds { space, address, bytes, nearest }));
        }
        if address & u64::from(bytes - 1) != 0 {
            return Err(Box::new(FaultKind::Misaligned { space: self.space, address, bytes }));
        }
        Ok(offset as usize)
    }

    fn touched(&mut self) -> bool {
        if !self.writable {
            return false;
        }
        if self.touches.is_empty() {
            self.touches = vec![[0; 6]; self.bytes.len()];
        }
        true
    }

    #[cold]
    fn race(&self, place: usize, race: Race, who: &Who<'_>, access: &'static str) -> Box<FaultKind> {
        let warps = who.order.warps;
        let (block, warp) = (race.warp / warps, race.warp % warps);
        let mine = (who.warp / warps, who.warp % warps);
        let did = if race.wrote { "wrote" } else { "read" };
        let lane = race.lane;
        let (other, advice) = if race.warp == who.warp {
            (format!("lane {lane} of the same warp {did}"), "put a `bar.warp.sync` between them")
        } else if block == mine.0 {
            let advice = "put a `bar.sync` between them, or use atomics for both";
            (format!("lane {lane} of warp {warp} {did}"), advice)
        } else {
            let advice = "release after the one and acquire before the other, or use atomics for both";
            (format!("lane {lane} of warp {warp} of block {block} {did}"), advice)
        };
        let (space, offset) = (self.space, place as u64);
        Box::new(FaultKind::Unordered { space, address: self.base + offset, offset, access, other, advice })
    }

    #[cold]
    fn unknown(&self, place: usize) -> Box<FaultKind> {
        let (space, offset) = (self.space, place as u64);
        Box::new(FaultKind::UninitialisedMemory { space, address: self.base + offset, offset })
    }

    /// A read of up to 16 bytes.
    #[inline]
    pub fn load(
        &mut self,
        address: u64,
        bytes: u32,
        who: &Who<'_>,
        nc: bool,
    ) -> Result<[u8; 16], Box<FaultKind>> {
        let at = self.place(address, bytes)?;
        let end = at + bytes as usize;
        if let Some(place) = (at..end).find(|&place| self.known[place] == 0 && !self.lenient) {
            return Err(self.unknown(place));
        }
        let since = self.fresh.max(who.order.start);
        if self.touched() {
            for place in at..end {
                if let Err(race) = order::read(&mut self.touches[place], who, since) {
                    return Err(self.race(place, race, who, "reads"));
                }
                if nc && order::written_since(&self.touches[place], since) {
                    return Err(Box::new(FaultKind::NonCoherent { address: self.base + place as u64 }));
                }
            }
        }
        let mut value = [0; 16];
        value[..bytes as usize].copy_from_slice(&self.bytes[at..end]);
        Ok(value)
    }

    /// A write of up to 16 bytes.
    #[inline]
    pub fn store(&mut self, address: u64, value: &[u8], who: &Who<'_>) -> Result<(), Box<FaultKind>> {
        let at = self.place(address, value.len() as u32)?;
        if !self.touched() {
            return Err(Box::new(FaultKind::ReadOnly { address }));
        }
        let since = self.fresh.max(who.order.start);
        for (place, &byte) in (at..).zip(value) {
            let same = self.known[place] == 1 && self.bytes[place] == byte;
            if let Err(race) = order::write(&mut self.touches[place], who, since, same) {
                return Err(self.race(place, race, who, "writes"));
            }
            self.bytes[place] = byte;
            self.known[place] = 1;
        }
        Ok(())
    }

    /// An atomic update of 4 or 8 bytes: returns what was there.
    pub fn update(
        &mut self,
        address: u64,
        bytes: u32,
        who: &Who<'_>,
        f: impl FnOnce(u64) -> u64,
    ) -> Result<u64, Box<FaultKind>> {
        let at = self.place(address, bytes)?;
        if !self.touched() {
            return Err(Box::new(FaultKind::ReadOnly { address }));
        }
        let (end, since) = (at + bytes as usize, self.fresh.max(who.order.start));
        for place in at..end {
            if self.known[place] == 0 && !self.lenient {
                return Err(self.unknown(place));
            }
            if let Err(race) = order::write(&mut self.touches[place], who, since, false) {
                return Err(self.race(place, race, who, "updates"));
            }
        }
        let mut old = [0; 8];
        old[..bytes as usize].copy_from_slice(&self.bytes[at..end]);
        let old = u64::from_le_bytes(old);
        self.bytes[at..end].copy_from_slice(&f(old).to_le_bytes()[..bytes as usize]);
        Ok(old)
    }

    /// Makes bytes unknown: a copy into them is on its way.
    pub fn expect(&mut self, address: u64, bytes: u32) -> Result<(), Box<FaultKind>> {
        let at = self.place(address, bytes)?;
        self.known[at..at + bytes as usize].fill(0);
        Ok(())
    }
}

/// Bytes between the bases of two allocations: none reaches the next one.
const STRIDE: u32 = 36;
/// Where an allocation starts in its stride: sums with an offset carry into the high half of an address, as they may on a device.
const START: u64 = 0xffff_f000;

/// The memory of a device.
///
/// Addresses are what a kernel gets as arguments; they mean nothing on the host. Fresh memory holds garbage, and counts as not written.
///
/// ```
/// let mut memory = nvptx_builder::interpret::Memory::new();
/// let numbers = memory.upload(&[1, 2, 3, 4]);
/// let fresh = memory.allocate(4);
/// assert_eq!(memory.read(numbers, 4)?, [1, 2, 3, 4]);
/// assert!(memory.read(fresh, 4).is_err());
/// # Ok::<(), nvptx_builder::interpret::MemoryError>(())
/// ```
#[derive(Default)]
pub struct Memory {
    regions: Vec<Region>,
    /// Time of the last access of any launch.
    pub(super) now: u32,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let regions = self.regions.iter().filter(|region| region.live);
        f.debug_map().entries(regions.map(|region| (region.base, region.bytes.len()))).finish()
    }
}

impl Memory {
    /// No memory yet.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// An allocation of `bytes` bytes that nobody has written, at a multiple of 256. Returns its address.
    pub fn allocate(&mut self, bytes: usize) -> u64 {
        let base = ((self.regions.len() as u64 + 1) << STRIDE) + START;
        self.regions.push(Region::new(Space::Global, base, bytes));
        base
    }

    /// An allocation with these bytes in it. Returns its address.
    pub fn upload(&mut self, bytes: &[u8]) -> u64 {
        let base = self.allocate(0);
        if let Some(region) = self.regions.last_mut() {
            (region.bytes, region.known) = (bytes.to_vec(), vec![1; bytes.len()]);
        }
        base
    }

    /// As [`Memory::upload`], for bytes that kernels only read: a write to them is a fault.
    pub fn upload_read_only(&mut self, bytes: &[u8]) -> u64 {
        let base = self.upload(bytes);
        if let Some(region) = self.regions.last_mut() {
            region.writable = false;
        }
        base
    }

    /// Gives an allocation back; whoever touches it later faults. Nothing happens when there is none at the address.
    pub fn free(&mut self, address: u64) {
        if let Some(region) = self.regions.iter_mut().find(|region| region.base == address) {
            region.live = false;
            (region.known, region.touches) = (Vec::new(), Vec::new());
        }
    }

    /// The region that holds an address, or would if it were larger.
    #[inline]
    pub(super) fn region(&mut self, address: u64, bytes: u32) -> Result<&mut Region, Box<FaultKind>> {
        let number = (address.wrapping_sub(START) >> STRIDE).wrapping_sub(1) as usize;
        let count = self.regions.len();
        self.regions.get_mut(number).ok_or_else(|| {
            let nearest = match count {
                0 => "there is no allocation at all".to_owned(),
                _ => "there is no allocation near it".to_owned(),
            };
            Box::new(FaultKind::OutOfBounds { space: Space::Global, address, bytes, nearest })
        })
    }

    fn range(&mut self, address: u64, bytes: usize) -> Result<(&mut Region, usize), MemoryError> {
        let count = bytes;
        let bytes = count as u64;
        let out = |nearest: String| MemoryError::OutOfBounds { address, bytes, nearest };
        let region = self.region(address, 0).map_err(|_| out("there is no allocation near it".to_owned()))?;
        let offset = address.wrapping_sub(region.base);
        let end = offset.checked_add(bytes);
        if !region.live || end.is_none_or(|end| end > region.bytes.len() as u64) {
            return Err(out(region.describe(address)));
        }
        Ok((region, offset as usize))
    }

    /// Writes bytes from the host. (Kernels may not write a read-only allocation; the host may.)
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (region, at) = self.range(address, bytes.len())?;
        region.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        region.known[at..at + bytes.len()].fill(1);
        Ok(())
    }

    /// Reads bytes that somebody has written.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`], [`MemoryError::Uninitialised`].
    pub fn read(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>, MemoryError> {
        let (region, at) = self.range(address, bytes)?;
        if let Some(place) = region.known[at..at + bytes].iter().position(|&known| known == 0) {
            let (address, offset) = (address + place as u64, (at + place) as u64);
            return Err(MemoryError::Uninitialised { address, offset });
        }
        Ok(region.bytes[at..at + bytes].to_vec())
    }

    /// The bytes as they are, written or not.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn peek(&mut self, address: u64, bytes: usize) -> Result<Vec<u8>, MemoryError> {
        let (region, at) = self.range(address, bytes)?;
        Ok(region.bytes[at..at + bytes].to_vec())
    }

    /// Fills a range with one byte.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn fill(&mut self, address: u64, bytes: usize, value: u8) -> Result<(), MemoryError> {
        let (region, at) = self.range(address, bytes)?;
        region.bytes[at..at + bytes].fill(value);
        region.known[at..at + bytes].fill(1);
        Ok(())
    }

    /// Copies a range, as a device does: what was not written is not written in the copy.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`].
    pub fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<(), MemoryError> {
        let (source, at) = self.range(from, bytes)?;
        let (value, known) = (source.bytes[at..at + bytes].to_vec(), source.known[at..at + bytes].to_vec());
        let (target, at) = self.range(to, bytes)?;
        target.bytes[at..at + bytes].copy_from_slice(&value);
        target.known[at..at + bytes].copy_from_slice(&known);
        Ok(())
    }

    /// Forgets when what was touched, before the count of accesses ends.
    pub(super) fn begin(&mut self) {
        if self.now > 1 << 30 {
            self.regions.iter_mut().for_each(|region| region.touches = Vec::new());
            self.now = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        let mut memory = Memory::new();
        assert!(memory.read(0, 1).is_err());
        let (a, b) = (memory.allocate(10), memory.upload(&[7; 3]));
        assert!(a.is_multiple_of(256) && b.is_multiple_of(256));
        assert_eq!(memory.read(b, 3).unwrap(), [7; 3]);
        assert_eq!(memory.read(b + 1, 2).unwrap(), [7; 2]);
        let error = memory.read(b + 1, 3).unwrap_err();
        assert!(error.to_string().contains("byte 1 of an allocation of 3 bytes"), "{error}");
        assert!(matches!(memory.write(a - 1, &[1]), Err(MemoryError::OutOfBounds { .. })));
        memory.write(a + 2, &[1, 2]).unwrap();
        assert_eq!(memory.read(a + 2, 2).unwrap(), [1, 2]);
        assert!(matches!(memory.read(a + 1, 2), Err(MemoryError::Uninitialised { offset: 1, .. })));
        memory.copy(b, a + 3, 2).unwrap();
        assert!(matches!(memory.read(b, 2), Err(MemoryError::Uninitialised { offset: 1, .. })));
        memory.fill(b, 3, 9).unwrap();
        assert_eq!(memory.read(b, 3).unwrap(), [9; 3]);
        memory.free(b);
        assert!(memory.read(b, 1).unwrap_err().to_string().contains("was freed"));
        assert!(memory.read(b, u64::MAX as usize).is_err());
    }
}
