//! What the manual needs to be a book: links that leave the folder `docs` lead to the repository.
//!
//! mdBook calls this as a preprocessor (`book.toml`). On a forge the pages are read as they are.

use std::io::{self, Read as _};
use std::path::Path;

use clap::Args;
use serde_json::Value;

/// What mdBook says when it calls a preprocessor.
#[derive(Args)]
pub(crate) struct BookLinks {
    /// With `supports RENDERER`: is it of use for this one?
    question: Vec<String>,
}

impl BookLinks {
    /// Reads the book, and prints it with its links changed.
    ///
    /// # Errors
    /// What came is no book of mdBook's.
    pub(crate) fn run(&self) -> Result<(), String> {
        if !self.question.is_empty() {
            return Ok(());
        }
        let mut said = String::new();
        io::stdin().read_to_string(&mut said).map_err(|error| format!("cannot read the book: {error}"))?;
        let called: Value = serde_json::from_str(&said).map_err(|error| format!("what came is no book: {error}"))?;
        let Value::Array(called) = called else { return Err("what came is no book: it is no array".to_owned()) };
        let [context, mut book] = <[Value; 2]>::try_from(called).map_err(|_| "what came is no book: it is no pair")?;
        let repository = context["config"]["output"]["html"]["git-repository-url"]
            .as_str()
            .ok_or("book.toml does not say where the repository is: output.html.git-repository-url")?;
        change_all(&mut book, &|page| change(page, repository, Path::is_dir));
        println!("{book}");
        Ok(())
    }
}

/// Changes the text of every chapter, wherever it stands.
fn change_all(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| change_all(item, change)),
        Value::Object(fields) => {
            for (name, field) in fields {
                if let (Value::String(text), "content") = (&mut *field, name.as_str()) {
                    *text = change(text);
                } else {
                    change_all(field, change);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A page in which each link to `../PATH` leads to PATH in the repository.
fn change(page: &str, repository: &str, is_folder: impl Fn(&Path) -> bool) -> String {
    let mut parts = page.split("](../");
    let mut changed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let path = part.split([')', '#']).next().unwrap_or_default();
        let kind = if is_folder(Path::new(path)) { "tree" } else { "blob" };
        changed.extend(["](", repository, "/", kind, "/main/", part]);
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{change, change_all};

    #[test]
    fn links_that_leave_the_folder_lead_to_the_repository() {
        let page = "[a](../a/b.md#c), [d](../d), [e](e.md), ![f](images/f.svg), [g](https://g.example/../g)";
        let changed = change(page, "https://forge", |path| path.ends_with("d"));
        let expected = "[a](https://forge/blob/main/a/b.md#c), [d](https://forge/tree/main/d), [e](e.md), \
                        ![f](images/f.svg), [g](https://g.example/../g)";
        assert_eq!(changed, expected);
    }

    #[test]
    fn the_text_of_every_chapter_is_changed_and_nothing_else() {
        let mut book = json!({"sections": [{"Chapter": {"name": "x", "content": "x", "sub_items": [{"Chapter": {"content": "x"}}]}}]});
        change_all(&mut book, &|text| text.to_uppercase());
        let expected = json!({"sections": [{"Chapter": {"name": "x", "content": "X", "sub_items": [{"Chapter": {"content": "X"}}]}}]});
        assert_eq!(book, expected);
    }
}
