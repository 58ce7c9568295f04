//! A connection that is no faster than one says: a token bucket in front of a socket.

use std::io::{Result, Write};
use std::time::{Duration, Instant};

/// Bytes that are written at once.
const PIECE: usize = 256 << 10;
/// Waits that are shorter are spent asking for the time: the system sleeps too long.
const SLEEP: Duration = Duration::from_micros(300);

/// A writer with a speed.
pub struct Shaped<W> {
    out: W,
    /// `None` for as fast as it goes.
    bytes_per_second: Option<f64>,
    /// When the next piece may go.
    next: Instant,
}

impl<W: Write> Shaped<W> {
    pub fn new(out: W, bytes_per_second: Option<f64>) -> Shaped<W> {
        Shaped { out, bytes_per_second, next: Instant::now() }
    }

    fn wait(&self) {
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if left > SLEEP { std::thread::sleep(left - SLEEP / 2) } else { std::hint::spin_loop() }
        }
    }
}

impl<W: Write> Write for Shaped<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(speed) = self.bytes_per_second else { return self.out.write(bytes) };
        self.wait();
        let written = self.out.write(&bytes[..bytes.len().min(PIECE)])?;
        // A link does not save up while it is idle.
        self.next = self.next.max(Instant::now()) + Duration::from_secs_f64(written as f64 / speed);
        Ok(written)
    }

    fn flush(&mut self) -> Result<()> {
        self.wait();
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_takes_the_time_of_its_speed() {
        let bytes = vec![7; 4 << 20];
        let mut link = Shaped::new(Vec::new(), Some(40e6));
        let start = Instant::now();
        link.write_all(&bytes).and_then(|()| link.flush()).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds >= 0.1, "{seconds}");
        assert_eq!(link.out, bytes);
        let mut fast = Shaped::new(Vec::new(), None);
        fast.write_all(&bytes).unwrap();
        assert_eq!(fast.out.len(), bytes.len());
    }
}
