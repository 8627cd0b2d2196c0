//! Completions for a shell and pages for `man`, made from the program's own arguments.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, Command, CommandFactory as _, builder::PossibleValuesParser};
use clap_complete::Shell;
use clap_mangen::Man as Man1;
use firebrick::Recipe;

use super::Arguments;
use crate::{ProgramError, out::Out};

/// Arguments of `firebrick completions`.
#[derive(Args)]
#[command(after_help = WHERE)]
pub struct Completions {
    /// The shell to write the script for
    #[arg(value_enum)]
    shell: Shell,
}

const WHERE: &str = "\
In bash the names of built-in recipes and the keys of --set are completed too.

Examples:
  firebrick completions bash > ~/.local/share/bash-completion/completions/firebrick
  firebrick completions zsh > ~/.zfunc/_firebrick     # ~/.zfunc has to be in fpath
  firebrick completions fish > ~/.config/fish/completions/firebrick.fish
  firebrick completions powershell >> $PROFILE";

/// Arguments of `firebrick man`.
#[derive(Args)]
#[command(after_help = "Example:\n  firebrick man ~/.local/share/man/man1")]
pub struct Man {
    /// The folder to write the pages into: firebrick.1, and one page for each command
    folder: PathBuf,
}

impl Completions {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let mut program = Arguments::command();
        if self.shell == Shell::Bash {
            program = with_values(program);
        }

        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "firebrick", &mut script);
        let script = String::from_utf8_lossy(&script);
        super::print(&match self.shell {
            Shell::Bash => without_blank_after_keys(&script),
            _ => script.into_owned(),
        })
    }
}

/// Adds the values that a shell can complete: built-in recipes, and keys. Where none fits, bash completes files; other
/// shells would then complete nothing, so that a recipe of the user's own could not be named.
fn with_values(mut program: Command) -> Command {
    let recipes = || PossibleValuesParser::new(firebrick_recipes::ALL.iter().map(|it| it.name));
    // clap keeps no text of its own here. The process ends when the script is printed.
    let keys: Vec<&'static str> =
        Recipe::keys().into_iter().map(|key| &*String::leak(key + "=")).collect();
    let keys = || PossibleValuesParser::new(&keys);

    for name in ["train", "plan", "compare", "eval"] {
        program = program.mut_subcommand(name, |command| {
            command.mut_args(|argument| match argument.get_id().as_str() {
                "recipe" | "recipes" => argument.value_parser(recipes()),
                "set" => argument.value_parser(keys()),
                _ => argument,
            })
        });
    }
    program.mut_subcommand("recipes", |command| {
        command.mut_subcommand("show", |show| {
            show.mut_arg("name", |name| name.value_parser(recipes()))
        })
    })
}

/// Lets bash write no blank after a key, where its value comes.
fn without_blank_after_keys(script: &str) -> String {
    let option = "--set)\n";
    let indent = " ".repeat(20);
    script.replace(option, &format!("{option}{indent}compopt -o nospace\n"))
}

impl Man {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let Man { folder } = self;
        fs::create_dir_all(&folder).map_err(ProgramError::file(&folder))?;
        // Building gives subcommands their full names, which become the names of the pages.
        let mut program = Arguments::command().disable_help_subcommand(true);
        program.build();
        write_pages(program, &folder)
    }
}

/// Writes the page of a command and the pages of its subcommands.
fn write_pages(command: clap::Command, folder: &Path) -> Result<(), ProgramError> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner.clone(), folder)?;
    }

    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let path = folder.join(format!("{name}.1"));

    // The version that `--version` prints has the commit and the features, and is too long for a footer.
    let page = Man1::new(
        command.version(env!("CARGO_PKG_VERSION")).after_help(clap::builder::Resettable::Reset),
    );

    let mut text = Vec::new();
    page.render(&mut text).map_err(ProgramError::file(&path))?;
    text.extend(notes(&after_help).bytes());
    Out::at_path(&path)?.write(&text)
}

/// Makes a section of the help text that follows the options, and keeps its lines.
fn notes(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }

    let line = |line: &str| {
        let escaped = line.replace('\\', r"\e").replace('-', r"\-");
        // A line that begins with a dot or an apostrophe would be a request to `man`.
        let guard = if escaped.starts_with(['.', '\'']) { r"\&" } else { "" };
        format!("{guard}{escaped}\n")
    };

    let lines: String = text.lines().map(line).collect();
    format!(".SH NOTES\n.nf\n{lines}.fi\n")
}
