//! Access control: which identity may claim which lock.
//!
//! Deny by default; what any rule allows is allowed, and the order of the rules means nothing. There are no deny rules,
//! so a rule can be read by itself.

use std::fmt;
use std::marker::PhantomData;

use monolock_core::{Glob, LockNameRef};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// An access-control list, parsed and compiled.
///
/// ```
/// use monolock_core::LockNameRef;
/// use monolock_net::Acl;
///
/// let acl = Acl::parse(r#"{"rules": [{"identity": "spiffe://prod/worker/*", "locks": ["nightly/*", "shard-?"]}]}"#)?;
/// let import = LockNameRef::new("nightly/import")?;
/// assert!(acl.allowing_rule("spiffe://prod/worker/7", import).is_some());
/// assert!(acl.allowing_rule("spiffe://dev/worker/7", import).is_none());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    rules: Vec<AclRule>,
}

/// One rule of an [`Acl`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclRule {
    number: usize,
    identity: Glob,
    locks: Vec<Glob>,
}

impl Acl {
    /// Parses the JSON of an access-control list: `{"rules": [{"identity": PATTERN, "locks": [PATTERN, …]}, …]}`.
    ///
    /// In a pattern `*` is any run of characters, `?` exactly one, and all else is literal; it must match the whole
    /// string, case counts.
    ///
    /// # Errors
    /// Text that is no such JSON, a field that does not exist, an empty pattern, a rule without locks; the error names
    /// the rule.
    pub fn parse(text: &str) -> Result<Self, AclError> {
        let mut json = serde_json::Deserializer::from_str(text);
        let Object(document): Object<Document> =
            serde_path_to_error::deserialize(&mut json).map_err(|error| AclError::of_json(&error))?;
        json.end().map_err(|error| AclError(error.to_string()))?;
        let rules = document.rules.into_iter().zip(1..).map(|(Object(rule), number)| AclRule::compile(rule, number));
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// The first rule that lets `identity` claim `lock`; `None` if none does.
    pub fn allowing_rule(&self, identity: &str, lock: LockNameRef<'_>) -> Option<&AclRule> {
        self.rules.iter().find(|rule| rule.allows(identity, lock))
    }

    /// The rules, in the order of the file.
    pub fn rules(&self) -> &[AclRule] {
        &self.rules
    }
}

impl AclRule {
    /// Its place in the file, from 1.
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Whom it is for.
    pub const fn identity(&self) -> &Glob {
        &self.identity
    }

    /// What it allows.
    pub fn locks(&self) -> &[Glob] {
        &self.locks
    }

    fn allows(&self, identity: &str, lock: LockNameRef<'_>) -> bool {
        self.identity.matches(identity) && self.locks.iter().any(|glob| glob.matches(lock.as_str()))
    }

    fn compile(rule: RuleDocument, number: usize) -> Result<Self, AclError> {
        let RuleDocument { identity, locks } = rule;
        let complain = |what| Err(AclError(format!("rule {number} (identity {identity:?}): {what}")));
        if identity.is_empty() {
            return complain("the identity is empty");
        }
        if locks.is_empty() {
            return complain("there are no locks");
        }
        if locks.iter().any(String::is_empty) {
            return complain("a lock pattern is empty");
        }
        Ok(Self { number, identity: Glob::new(&identity), locks: locks.iter().map(|lock| Glob::new(lock)).collect() })
    }
}

impl fmt::Display for AclRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks: Vec<_> = self.locks.iter().map(Glob::as_str).collect();
        write!(f, "rule {} (identity {:?}, locks {locks:?})", self.number, self.identity.as_str())
    }
}

/// What is wrong with the text of an access-control list: which rule, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclError(String);

impl AclError {
    fn of_json(error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let place = error.path().iter().find_map(|segment| match segment {
            serde_path_to_error::Segment::Seq { index } => Some(index + 1),
            serde_path_to_error::Segment::Map { .. }
            | serde_path_to_error::Segment::Enum { .. }
            | serde_path_to_error::Segment::Unknown => None,
        });
        match place {
            Some(number) => Self(format!("rule {number}: {}", error.inner())),
            None => Self(error.inner().to_string()),
        }
    }
}

impl fmt::Display for AclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AclError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    rules: Vec<Object<RuleDocument>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleDocument {
    identity: String,
    locks: Vec<String>,
}

/// What stands in JSON as an object. By itself serde takes an array too, for the fields in their order.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}
