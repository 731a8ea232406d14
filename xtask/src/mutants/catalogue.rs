//! The catalogue of planted bugs: a table of what each is and who finds it, beside one patch each.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The file with the table.
const TABLE: &str = "mutants.toml";

/// All mutants, in the order of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Catalogue {
    pub(crate) simulator: Simulator,
    #[serde(rename = "mutant")]
    mutants: Vec<Mutant>,
}

/// How the simulator looks for a mutant.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Simulator {
    /// The first seed.
    pub(crate) from: u64,
    /// How many it tries.
    pub(crate) seeds: u32,
}

/// One planted bug.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    name: String,
    /// What it is, and what a user would suffer.
    pub(crate) bug: String,
    /// The test that finds it.
    pub(crate) test: Option<Test>,
    /// Whether the simulator finds it too.
    #[serde(default)]
    pub(crate) simulator: bool,
    /// The difference that plants it, against the root of the repository.
    #[serde(skip)]
    pub(crate) patch: PathBuf,
}

/// A test.
#[derive(Debug, Deserialize)]
pub(crate) struct Test {
    #[serde(flatten)]
    pub(crate) target: TestTarget,
    /// As the test's own program names it.
    pub(crate) path: String,
}

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct TestTarget {
    pub(crate) package: String,
    /// `lib`, or the name of an integration test.
    #[serde(rename = "target")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

impl Catalogue {
    /// Reads the table in `folder`, and looks whether table and patches belong together.
    ///
    /// # Errors
    /// What is wrong, and in which file.
    pub(crate) fn load(folder: &Path) -> Result<Self, String> {
        let file = folder.join(TABLE);
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut catalogue: Self = toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut patches = patches(folder)?;
        for mutant in &mut catalogue.mutants {
            let Mutant { name, test, simulator, patch, .. } = mutant;
            if test.is_none() && !*simulator {
                return Err(format!("{}: mutant {name} has no finder", file.display()));
            }
            *patch = folder.join(format!("{name}.patch"));
            if !patches.remove(patch) {
                return Err(format!("{}: mutant {name} stands there twice or has no patch", file.display()));
            }
        }
        match patches.first() {
            None => Ok(catalogue),
            Some(patch) => Err(format!("{} does not stand in {}", patch.display(), file.display())),
        }
    }

    /// The mutants of these names, in the order of the table; all of them without a name.
    ///
    /// # Errors
    /// A name that there is not.
    pub(crate) fn choose(&self, names: &[String]) -> Result<Vec<&Mutant>, String> {
        if let Some(unknown) = names.iter().find(|name| self.mutants.iter().all(|mutant| mutant.name != **name)) {
            return Err(format!("there is no mutant {unknown}; `cargo xtask mutants --list` tells which there are"));
        }
        Ok(self.mutants.iter().filter(|mutant| names.is_empty() || names.contains(&mutant.name)).collect())
    }
}

impl Mutant {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl TestTarget {
    /// What `cargo test` is told to choose it.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        let Self { package, name, features } = self;
        let mut arguments = vec!["--package", package];
        arguments.extend(Self::kind_arguments(name));
        for feature in features {
            arguments.extend(["--features", feature]);
        }
        arguments
    }

    /// What `cargo test` is told to choose targets of this name, in whatever package.
    pub(crate) fn kind_arguments(name: &str) -> impl Iterator<Item = &str> {
        let is_library = name == "lib";
        [if is_library { "--lib" } else { "--test" }].into_iter().chain((!is_library).then_some(name))
    }
}

impl fmt::Display for TestTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.name)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.target, self.path)
    }
}

fn patches(folder: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let fail = |error| format!("{}: {error}", folder.display());
    let mut patches = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "patch") {
            patches.insert(path);
        }
    }
    Ok(patches)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::{Catalogue, TABLE};

    const HEAD: &str = "simulator = { from = 1, seeds = 10 }\n";
    const ONE: &str = r#"
        [[mutant]]
        name = "one"
        bug = "It is wrong."
        test = { package = "core", target = "it", path = "laws::it_is_right" }
    "#;
    const TWO: &str = r#"
        [[mutant]]
        name = "two"
        bug = "It is wrong too."
        simulator = true
    "#;

    fn folder(table: &[&str], patches: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(TABLE), table.concat()).unwrap();
        for patch in patches {
            fs::write(folder.path().join(patch), "").unwrap();
        }
        folder
    }

    #[track_caller]
    fn expect_error(table: &[&str], patches: &[&str], expected: &str) {
        let error = Catalogue::load(folder(table, patches).path()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn the_named_are_chosen_in_the_order_of_the_table() {
        let folder = folder(&[HEAD, ONE, TWO], &["one.patch", "two.patch"]);
        let catalogue = Catalogue::load(folder.path()).unwrap();
        let chosen = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            catalogue.choose(&names).map(|mutants| mutants.iter().map(|mutant| mutant.name()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[]).unwrap(), ["one", "two"]);
        assert_eq!(chosen(&["two", "one"]).unwrap(), ["one", "two"]);
        assert_eq!(chosen(&["two"]).unwrap(), ["two"]);
        assert!(chosen(&["three"]).unwrap_err().contains("no mutant three"));
    }

    #[test]
    fn a_table_and_patches_that_do_not_belong_together_are_refused() {
        expect_error(&[HEAD, ONE, TWO], &["one.patch"], "mutant two stands there twice or has no patch");
        expect_error(&[HEAD, ONE, ONE], &["one.patch"], "mutant one stands there twice or has no patch");
        expect_error(&[HEAD, ONE], &["one.patch", "two.patch"], "two.patch does not stand in");
        expect_error(&[HEAD, ONE, "simulated = true"], &["one.patch"], "unknown field `simulated`");
        let unsought = TWO.replace("true", "false");
        expect_error(&[HEAD, &unsought], &["two.patch"], "mutant two has no finder");
    }
}
