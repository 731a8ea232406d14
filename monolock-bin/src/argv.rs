//! The command line as people and unit files write it, made into the one form that the parser knows.
//!
//! Two liberties are taken out: long flags with a single dash (`-listen`), and flags before the command or no command
//! at all (`monolock --listen :0`). Nothing after `--` is looked at, and no value of a flag: what is not ours is passed
//! on as it came.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// What is served by a command line that names no command.
const DEFAULT_COMMAND: &str = "serve";

/// The arguments with the command in front and two dashes before every long flag. `command` is the whole parser, built.
///
/// Where help or the version is asked for first, it is about the program itself, and no command is put in.
pub(crate) fn normalise(command: &Command, argv: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut argv = argv.into_iter();
    let mut normal: Vec<OsString> = argv.next().into_iter().collect();
    let program_words = normal.len();
    let mut arguments = argv.peekable();
    if arguments.peek().is_some_and(|first| asks_for_text(first)) {
        normal.extend(arguments.map(|argument| double_dash(command, argument)));
        return normal;
    }
    // Flags that come before the command are the default command's.
    let mut scope = command.find_subcommand(DEFAULT_COMMAND).unwrap_or(command);
    let mut chosen = None;
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            normal.push(argument);
            break;
        }
        if chosen.is_none() && !argument.as_encoded_bytes().starts_with(b"-") {
            let named = command.find_subcommand(&argument);
            // After flags, a word that is no command is theirs: one of them is likely to be misspelt.
            if named.is_some() || normal.len() == program_words {
                scope = named.unwrap_or(scope);
                chosen = Some(argument);
                continue;
            }
        }
        let argument = double_dash(scope, argument);
        let takes_next = flag(scope, &argument).is_some_and(|flag| flag.get_action().takes_values());
        normal.push(argument);
        if takes_next {
            normal.extend(arguments.next());
        }
    }
    normal.insert(program_words, chosen.unwrap_or_else(|| DEFAULT_COMMAND.into()));
    normal.extend(arguments);
    normal
}

/// Help and version of the program itself, where they stand first.
pub(crate) fn asks_for_text(argument: &OsStr) -> bool {
    ["-h", "-help", "--help", "-V", "-version", "--version"].iter().any(|text| argument == *text)
}

/// `-listen` and `-listen=x` with one more dash; also where there is no such flag, so that the complaint is about the
/// whole word. What begins with a short flag's letter and is no long flag may be a bundle of short ones.
fn double_dash(scope: &Command, argument: OsString) -> OsString {
    let Some(text) = argument.to_str() else { return argument };
    let Some(word) = text.strip_prefix('-').filter(|word| word.starts_with(|first: char| first.is_ascii_alphabetic()))
    else {
        return argument;
    };
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let is_short = scope.get_arguments().filter_map(Arg::get_short).any(|short| name.starts_with(short));
    let is_long = name.len() > 1 && (long_flag(scope, name).is_some() || !is_short);
    if is_long { format!("-{text}").into() } else { argument }
}

/// The flag that this argument is the whole name of; not `--flag=value`.
fn flag<'a>(scope: &'a Command, argument: &OsStr) -> Option<&'a Arg> {
    long_flag(scope, argument.to_str()?.strip_prefix("--")?)
}

fn long_flag<'a>(scope: &'a Command, name: &str) -> Option<&'a Arg> {
    scope.get_arguments().find(|arg| arg.get_long() == Some(name))
}
