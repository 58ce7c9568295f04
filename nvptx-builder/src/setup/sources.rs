//! The system's own package sources, in both forms that apt reads.
//!
//! The suite that holds the library is seldom one that the system uses, but the archive is: the same mirrors, the same keyring, another
//! name. So the system's entry for the main Debian archive is read, and written again with the suite replaced.

/// An entry of the sources that provides binary packages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Source {
    /// Where the archive is; mirrors of one archive.
    pub uris: Vec<String>,
    /// Suites, for example `trixie`.
    pub suites: Vec<String>,
    /// Components, for example `main`.
    pub components: Vec<String>,
    /// What decides trust, as fields of the newer form: `Signed-By` and its like, as they stand.
    pub trust: Vec<(String, String)>,
}

/// Fields that are carried over into the entry for the other suite.
const TRUST: [&str; 3] = ["Signed-By", "Trusted", "Check-Valid-Until"];

impl Source {
    /// Is it the main archive of Debian, not that of security updates and not another vendor's?
    ///
    /// The path tells: `.../debian`, or a list of mirrors named so.
    pub fn is_debian(&self) -> bool {
        let is_archive = |uri: &String| {
            let path = uri.split_once("://").map_or(uri.as_str(), |(_, path)| path);
            path.split('/').skip(1).any(|part| part == "debian" || part == "debian.list")
                && !uri.contains("debian-security")
        };
        !self.uris.is_empty()
            && self.uris.iter().all(is_archive)
            && self.components.iter().any(|component| component == "main")
    }

    /// The entry in the newer form, for another suite.
    pub fn with_suite(&self, suite: &str) -> String {
        let mut text =
            format!("Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\n", self.uris.join(" "));
        for (name, value) in &self.trust {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text
    }
}

/// Reads the newer form, `.sources`: fields in paragraphs, after Debian's control files.
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(from_fields(&fields));
            fields.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push('\n');
                value.push_str(line.trim_end());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    sources
}

fn from_fields(fields: &[(String, String)]) -> Option<Source> {
    let field = |name: &str| {
        fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let words = |name: &str| {
        field(name)
            .map(|value| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let is_off = field("Enabled")
        .is_some_and(|value| ["no", "false", "off", "0"].contains(&&*value.to_ascii_lowercase()));
    if is_off || !words("Types").iter().any(|kind| kind == "deb") {
        return None;
    }
    let trust = TRUST.iter().filter_map(|name| Some(((*name).to_owned(), field(name)?.clone()))).collect();
    Some(Source { uris: words("URIs"), suites: words("Suites"), components: words("Components"), trust })
}

/// Reads the older form, `.list`: `deb [options] uri suite components`.
pub fn parse_one_line(text: &str) -> Vec<Source> {
    text.lines().filter_map(one_line).collect()
}

fn one_line(line: &str) -> Option<Source> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let rest = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t']))?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    let option = |wanted: &str| {
        let pairs = options.split_whitespace().filter_map(|option| option.split_once('='));
        pairs
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.replace(',', " "))
            .next()
    };
    let trust = TRUST.iter().filter_map(|name| Some(((*name).to_owned(), option(name)?))).collect();
    Some(Source { uris: vec![uri], suites: vec![suite], components: words.collect(), trust })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "# a comment\nTypes: deb deb-src\n# another\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n\
        Components: main contrib\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\nTypes: deb\nURIs: http://mirror.example/debian-security\n\
        Suites: bookworm-security\nComponents: main\n\nEnabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: sid\nComponents: main\n\n\
        types: deb-src\nuris: http://src.example/debian\nsuites: sid\ncomponents: main\n";

    #[test]
    fn the_newer_form_is_read() {
        let sources = parse_deb822(DEB822);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        assert!(sources[0].is_debian() && !sources[1].is_debian());
        assert_eq!(
            sources[0].with_suite("trixie-backports"),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie-backports\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        );
    }

    #[test]
    fn a_key_in_the_file_is_carried_over_as_it_stands() {
        let text = "Types: deb\nURIs: https://a.example/debian/ https://b.example/debian/\nSuites: trixie\nComponents: main\nSigned-By:\n \
                    -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc=\n -----END PGP PUBLIC KEY BLOCK-----\n";
        let sources = parse_deb822(text);
        assert!(sources[0].is_debian());
        assert_eq!(
            sources[0].with_suite("sid"),
            text.replace("Suites: trixie", "Suites: sid").replace("Signed-By:\n", "Signed-By: \n")
        );
    }

    #[test]
    fn the_older_form_is_read() {
        let text = "# deb http://off.example/debian sid main\ndeb [ arch=amd64,arm64 signed-by=/a.gpg,/b.gpg ] http://mirror.example/debian/ trixie main contrib # why\n\
                    deb-src http://mirror.example/debian trixie main\ndeb http://mirror.example/debian-security trixie-security main\n\
                    deb http://other.example/ubuntu noble main\ndeb http://mirror.example/debian\ndebris x y z\n";
        let sources = parse_one_line(text);
        assert_eq!(sources.iter().map(Source::is_debian).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(
            sources[0].with_suite("sid"),
            "Types: deb\nURIs: http://mirror.example/debian/\nSuites: sid\nComponents: main\nSigned-By: /a.gpg /b.gpg\n"
        );
    }

    #[test]
    fn mirror_lists_and_snapshots_are_debian() {
        let source = |uri: &str| Source {
            uris: vec![uri.into()],
            components: vec!["main".into()],
            ..Source::default()
        };
        assert!(source("mirror+file:///etc/apt/mirrors/debian.list").is_debian());
        assert!(source("http://snapshot.example/archive/debian/20260101T000000Z").is_debian());
        assert!(!source("http://packages.example/apt").is_debian());
        assert!(!source("https://debian.example/node").is_debian());
    }
}
