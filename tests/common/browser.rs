//! A real browser without a window, for pages that the program writes.
//!
//! It is run as a command: a page of ours holds the page under test in frames, looks at it by script, and is printed as it is afterwards; what
//! is said on the console comes by stderr. So there is no protocol and no driver that would have to match the browser's version.

use serde_json::Value;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAMES: [&str; 7] = [
    "chromium-headless-shell",
    "chrome-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
];

pub struct Browser(PathBuf);

/// What a page said.
pub struct Seen {
    /// What the script of the outer page found out.
    pub found: Value,
    /// Lines of the console.
    pub console: Vec<String>,
}

impl Browser {
    /// The one that `SPLITZIP_BROWSER` names, or the first that is installed. Without one it says on stderr that `test` is skipped, and fails where
    /// `SPLITZIP_REQUIRE_BROWSER` is set.
    pub fn find(test: &str) -> Option<Browser> {
        if let Some(path) = std::env::var_os("SPLITZIP_BROWSER") {
            return Some(Browser(path.into()));
        }
        let path: OsString = std::env::var_os("PATH").unwrap_or_default();
        let found = NAMES.iter().find_map(|name| {
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
        });
        if found.is_none() {
            let line = format!(
                "skipped: {test} needs a browser, and there is none: install chromium (Debian: chromium-headless-shell), or name one in SPLITZIP_BROWSER\n"
            );
            assert!(std::env::var_os("SPLITZIP_REQUIRE_BROWSER").is_none(), "{line}");
            // Past the harness, which keeps what passing tests print.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        found.map(Browser)
    }

    /// Opens `outer`, whose script leaves JSON in the element `found`. Without a window it is `width` wide.
    pub fn open(&self, outer: &Path, dark: bool) -> Seen {
        let profile = tempfile::tempdir().expect("a profile");
        let mut command = Command::new(&self.0);
        command
            .args(["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--disable-quic", "--hide-scrollbars"])
            // Tests run as root on many machines, and the page is ours.
            .args(["--no-sandbox", "--allow-file-access-from-files", "--enable-logging=stderr"])
            .args(["--window-size=1400,1000", "--virtual-time-budget=5000", "--dump-dom"])
            .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("file://{}", outer.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.0.display()));
        // Both pipes are read while it runs: a page is longer than a pipe.
        let read = |mut from: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                from.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
            })
        };
        let stdout = read(Box::new(child.stdout.take().expect("a pipe")));
        let stderr = read(Box::new(child.stderr.take().expect("a pipe")));
        let start = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if start.elapsed() > Duration::from_secs(120) {
                let _ = child.kill();
                panic!("{} has not ended after two minutes", self.0.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let page = stdout.join().expect("a thread").expect("stdout");
        let said = stderr.join().expect("a thread").expect("stderr");
        let found = page.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (found, _) = found.unwrap_or_else(|| panic!("the page was not opened: {page}\n{said}"));
        let found =
            found.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
        Seen {
            found: serde_json::from_str(&found).unwrap_or_else(|error| panic!("{error}: {found}\n{said}")),
            console: said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
        }
    }
}
