//! The token file: tokens rise across restarts whatever the wall clock does.
//!
//! It holds a mark below which tokens may have been granted. The mark is written, with its rename made durable, before
//! any token up to it is granted, and lies an hour ahead in the space of tokens, so it is written seldom. A start
//! begins at the mark; a stop in good order writes the next token instead, so that nothing is skipped.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{error, fmt};

use monolock_core::{Token, TokenSequence};

use crate::clock::Clock;

/// How far ahead tokens are reserved, in seconds of wall time.
const RESERVED_SECONDS: u64 = 3600;

/// When less than so many seconds are left, more are reserved.
const LOW_SECONDS: u64 = RESERVED_SECONDS / 2;

/// The first words of the file: what it is, and in which version.
const HEADER: &str = "monolock-tokens 1";

/// An open token file. Nobody else has it open.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    tokens: Arc<TokenSequence>,
    /// The end of what is reserved.
    end: u64,
    /// Held locked as long as this lives.
    _lock: File,
}

/// Why a token file cannot be used.
#[derive(Debug)]
pub struct TokenFileError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    InUse,
    Damaged,
    Io(io::Error),
}

impl TokenFile {
    /// Opens the file, which may be absent, begins a sequence at its mark, and reserves its first tokens.
    pub(crate) fn open(path: &Path) -> Result<Self, TokenFileError> {
        // Another name of the same file would have another lock, and lose the file at the first writing.
        let canonical = fs::canonicalize(path);
        let path = canonical.as_deref().unwrap_or(path);
        let fail = |problem| TokenFileError { path: path.to_owned(), problem };
        // The file itself is replaced by each writing, so the lock is on one beside it.
        let lock_path = beside(path, "lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(lock_path);
        let lock = lock.map_err(|error| fail(Problem::Io(error)))?;
        lock.try_lock().map_err(|error| {
            fail(match error {
                TryLockError::WouldBlock => Problem::InUse,
                TryLockError::Error(error) => Problem::Io(error),
            })
        })?;
        let mark = match fs::read_to_string(path) {
            Ok(text) => parse(&text).ok_or_else(|| fail(Problem::Damaged))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => FIRST,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(fail(Problem::Damaged)),
            Err(error) => return Err(fail(Problem::Io(error))),
        };
        let tokens = Arc::new(TokenSequence::starting_at(mark));
        let mut file = Self { path: path.to_owned(), tokens, end: 0, _lock: lock };
        file.extend(Clock::wall()).map_err(|error| fail(Problem::Io(error)))?;
        Ok(file)
    }

    /// The sequence that the file stands for.
    pub(crate) fn tokens(&self) -> Arc<TokenSequence> {
        Arc::clone(&self.tokens)
    }

    /// Whether it is time to reserve more.
    pub(crate) fn is_low(&self, wall: SystemTime) -> bool {
        self.upcoming(wall).saturating_add(TokenSequence::at_unix_second(LOW_SECONDS)) > self.end
    }

    /// Reserves tokens for an hour from now.
    ///
    /// # Errors
    /// Those of writing. Then what was reserved stays so.
    pub(crate) fn extend(&mut self, wall: SystemTime) -> io::Result<()> {
        let end = self.upcoming(wall).saturating_add(TokenSequence::at_unix_second(RESERVED_SECONDS));
        write(&self.path, end)?;
        self.end = end;
        self.tokens.reserve_below(end);
        Ok(())
    }

    /// Gives back what was reserved and not granted: the next start goes on where this server stopped. Nothing is
    /// granted after it.
    ///
    /// # Errors
    /// Those of writing. Then the next start skips what was reserved.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.tokens.reserve_below(0);
        write(&self.path, self.tokens.upcoming())
    }

    fn upcoming(&self, wall: SystemTime) -> u64 {
        self.tokens.upcoming().max(TokenSequence::at_unix_second(Clock::unix_second(wall)))
    }
}

const FIRST: Token = Token::new(1).expect("1 is not zero");

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.problem {
            Problem::InUse => f.write_str("another server uses it"),
            Problem::Damaged => f.write_str(
                "it is damaged; restore it, or remove it if the wall clock is right and no token of this server is newer than it",
            ),
            Problem::Io(error) => error.fmt(f),
        }
    }
}

impl error::Error for TokenFileError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            Problem::InUse | Problem::Damaged => None,
        }
    }
}

/// The mark stands twice, so that a number that has lost or changed a digit is not taken for another.
pub(crate) fn parse(text: &str) -> Option<Token> {
    let rest = text.strip_prefix(HEADER)?.strip_prefix(' ')?.strip_suffix('\n')?;
    let (decimal, hexadecimal) = rest.split_once(' ')?;
    let mark = decimal.parse().ok()?;
    (u64::from_str_radix(hexadecimal, 16).ok()? == mark).then(|| Token::new(mark))?
}

/// The text of a file with this mark.
pub(crate) fn render(mark: u64) -> String {
    format!("{HEADER} {mark} {mark:x}\n")
}

/// Replaces the file, so that after a crash it is the old or the new one, and the new one once this has returned.
fn write(path: &Path, mark: u64) -> io::Result<()> {
    let new_path = beside(path, "new");
    let mut new = File::create(&new_path)?;
    new.write_all(render(mark).as_bytes())?;
    new.sync_all()?;
    fs::rename(&new_path, path)?;
    // The rename is durable when its directory is.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::{TokenFile, parse};
    use crate::clock::Clock;

    fn at(unix_second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(unix_second)
    }

    fn take(file: &TokenFile) -> u64 {
        file.tokens().next().unwrap().get()
    }

    #[test]
    fn b35_tokens_rise_over_a_stop_and_over_a_crash_whatever_the_wall_clock_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let mut file = TokenFile::open(&path).unwrap();
        // The wall clock shows a far future for a while.
        file.extend(at(10_000_000_000)).unwrap();
        file.tokens().lift_to_unix_second(10_000_000_000);
        let first = take(&file);
        file.finish().unwrap();
        drop(file);

        let file = TokenFile::open(&path).unwrap();
        let after_the_stop = take(&file);
        assert_eq!(after_the_stop, first + 1, "nothing is skipped by a stop in good order");
        drop(file);

        let file = TokenFile::open(&path).unwrap();
        assert!(take(&file) > after_the_stop, "a crash skips what was reserved");
    }

    #[test]
    fn no_token_is_granted_beyond_what_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let file = TokenFile::open(&path).unwrap();
        let written = parse(&std::fs::read_to_string(&path).unwrap()).unwrap().get();
        file.tokens().lift_to_unix_second((written >> 20) - 1);
        let token = file.tokens().next();
        assert!(token.is_none_or(|token| token.get() < written));
        for _ in 0..1 << 20 {
            file.tokens().next();
        }
        assert_eq!(file.tokens().next(), None);
    }

    #[test]
    fn b34_a_wall_clock_that_steps_forward_does_not_use_up_the_reserve() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let mut file = TokenFile::open(&path).unwrap();
        let ten_years = 315_360_000;
        let later = SystemTime::now() + Duration::from_secs(ten_years);
        let before = take(&file);
        file.tokens().lift_to_unix_second(Clock::unix_second(later));
        assert_eq!(take(&file), before + 1);
        assert!(file.is_low(later));
        file.extend(later).unwrap();
        file.tokens().lift_to_unix_second(Clock::unix_second(later));
        assert!(take(&file) > before + (ten_years << 20));
    }

    #[test]
    fn more_is_reserved_before_it_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = TokenFile::open(&directory.path().join("tokens")).unwrap();
        let now = SystemTime::now();
        assert!(!file.is_low(now));
        let later = now + Duration::from_mins(50);
        assert!(file.is_low(later));
        file.extend(later).unwrap();
        assert!(!file.is_low(later));
    }

    #[test]
    fn a_second_server_is_refused_and_a_damaged_file_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let file = TokenFile::open(&path).unwrap();
        assert!(TokenFile::open(&path).unwrap_err().to_string().ends_with("another server uses it"));
        drop(file);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(TokenFile::open(&path).unwrap_err().to_string().contains("it is damaged"), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            std::fs::write(&path, flipped).unwrap();
            assert!(TokenFile::open(&path).unwrap_err().to_string().contains("it is damaged"), "flipped at {at}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_said_and_keeps_what_was_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep").join("tokens");
        std::fs::create_dir(directory.path().join("deep")).unwrap();
        let mut file = TokenFile::open(&path).unwrap();
        std::fs::remove_dir_all(directory.path().join("deep")).unwrap();
        file.extend(SystemTime::now()).unwrap_err();
        assert!(file.tokens().has_next());
        assert!(TokenFile::open(&path).is_err());
    }
}
