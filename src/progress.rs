//! Progress on stderr when it is a terminal, and Ctrl-C: work that writes a file stops at the next frame, so that its temporary is
//! removed.

use indicatif::{ProgressBar, ProgressStyle};
use splitzip_host::file::FileError;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static HANDLER: Once = Once::new();

/// A bar that counts raw bytes.
pub struct Bar {
    bar: ProgressBar,
    before: u64,
}

impl Bar {
    /// A bar; it draws nothing when stderr is no terminal. A total of 0 is one that nobody knows yet.
    pub fn new(what: &'static str, total: u64) -> Bar {
        let (bar, template) = match total {
            0 => (ProgressBar::no_length(), "{msg} {decimal_bytes}, {decimal_bytes_per_sec}"),
            _ => (
                ProgressBar::new(total),
                "{msg} {wide_bar} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta}",
            ),
        };
        let bar = bar.with_message(what);
        let style = ProgressStyle::with_template(template);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Bar { bar, before: 0 }
    }

    /// Says that `done` bytes are done, of those that the present file has.
    pub fn at(&mut self, done: u64) -> splitzip_host::Result<()> {
        self.bar.set_position(self.before + done);
        if interrupted() { Err(FileError::Interrupted.into()) } else { Ok(()) }
    }

    /// Says that the next file begins, after one of `bytes`.
    pub fn next(&mut self, bytes: u64) {
        self.before += bytes;
        self.bar.set_position(self.before);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Whether there was an interrupt.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// From now on an interrupt lets the work end by itself; a second one ends it at once.
pub fn catch_interrupts() {
    HANDLER.call_once(|| {
        let set = ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(1);
            }
        });
        if let Err(error) = set {
            tracing::info!("an interrupt may leave a temporary behind: {error}");
        }
    });
}
