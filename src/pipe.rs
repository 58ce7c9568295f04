//! stdin and stdout as files: what `-` stands for, and what happens at their ends.

use crate::failure::{Failure, Result};
use crate::progress::interrupted;
use splitzip_host::file::{FileError, Target};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Whether a path stands for stdin or stdout.
pub fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// stdin, read without a buffer in between. An interrupt ends a read that waits, so that the work can remove its temporary.
pub struct Stdin(#[cfg(unix)] File);

impl Stdin {
    /// Opens it.
    ///
    /// # Errors
    /// A terminal: nobody types a tensor.
    pub fn open() -> Result<Stdin> {
        if io::stdin().is_terminal() {
            let reason = "stdin is a terminal; give a file, or send one through a pipe";
            return Err(Failure::Usage(reason.to_owned()));
        }
        #[cfg(unix)]
        {
            let fd = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned();
            let fd = fd.map_err(|error| Failure::Failed(format!("cannot read stdin: {error}")))?;
            Ok(Stdin(File::from(fd)))
        }
        #[cfg(not(unix))]
        Ok(Stdin())
    }

    /// Waits until there is something to read, or the end.
    #[cfg(unix)]
    fn wait(&self) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let while_nothing_happens = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if interrupted() {
                return Err(io::Error::other(FileError::Interrupted));
            }
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&while_nothing_happens)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Stdin {
    #[cfg(unix)]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        self.0.read(bytes)
    }

    #[cfg(not(unix))]
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if interrupted() {
            return Err(io::Error::other(FileError::Interrupted));
        }
        io::stdin().lock().read(bytes)
    }
}

/// Where bytes go.
pub enum Sink {
    File(Target),
    Stdout(Box<dyn Write + Send>),
}

impl Sink {
    /// Starts a file, or opens stdout.
    ///
    /// # Errors
    /// As [`Target::create`]; a terminal, unless `force` says that it is meant.
    pub fn create(path: &Path, force: bool) -> Result<Sink> {
        if !is_pipe(path) {
            let target = Target::create(path, force).map_err(Failure::at(path))?;
            #[cfg(unix)]
            crate::shortened::temporary(Some(target.temporary()));
            return Ok(Sink::File(target));
        }
        if io::stdout().is_terminal() && !force {
            let reason = "stdout is a terminal; name a file with -o, or send the bytes through a pipe";
            return Err(Failure::Usage(reason.to_owned()));
        }
        // Without the buffer of lines that stdout has.
        #[cfg(unix)]
        let out = File::from(
            std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned().map_err(Failure::stdout)?,
        );
        #[cfg(not(unix))]
        let out = io::stdout();
        Ok(Sink::Stdout(Box::new(out)))
    }

    /// What takes the bytes.
    pub fn writer(&mut self) -> &mut (dyn Write + Send) {
        match self {
            Sink::File(target) => target.file(),
            Sink::Stdout(out) => out,
        }
    }

    /// Writes all of a small result.
    ///
    /// # Errors
    /// Whoever read stdout has gone; what the system says.
    pub fn write(&mut self, bytes: &[u8], path: &Path) -> Result {
        let written = self.writer().write_all(bytes);
        match self {
            Sink::File(_) => written.map_err(|error| Failure::between(path, path)(error.into())),
            Sink::Stdout(_) => written.map_err(Failure::stdout),
        }
    }

    /// Where a file is until it is committed.
    pub fn temporary(&self) -> Option<&Path> {
        match self {
            Sink::File(target) => Some(target.temporary()),
            Sink::Stdout(_) => None,
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// As [`Target::commit`].
    pub fn commit(self, path: &Path) -> Result {
        #[cfg(unix)]
        crate::shortened::temporary(None);
        match self {
            Sink::File(target) => target.commit().map_err(Failure::at(path)),
            Sink::Stdout(_) => Ok(()),
        }
    }
}

/// Refuses two inputs from one stdin: the second would be empty.
pub fn refuse_twice<'p>(inputs: impl IntoIterator<Item = &'p PathBuf>) -> Result {
    if inputs.into_iter().filter(|input| is_pipe(input)).count() > 1 {
        let reason = "- stands for stdin, which can only be read once; name a file for the other";
        return Err(Failure::Usage(reason.to_owned()));
    }
    Ok(())
}

/// Refuses two things on one stdout.
pub fn refuse_json(output: &Path, json: bool) -> Result {
    if json && is_pipe(output) {
        let reason = "the file and --json cannot both go to stdout; name a file with -o";
        return Err(Failure::Usage(reason.to_owned()));
    }
    Ok(())
}

/// A write beyond a limit of the size of files becomes an error. Without this the signal would end the process, and leave its temporary.
#[cfg(unix)]
pub fn catch_file_size_limit() -> io::Result<()> {
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen).map(|_| ())
}
