//! The bill of what is in the binary, in `CycloneDX` 1.6 as JSON.
//!
//! It says nothing of when and where it was made but the commit's time, so that it is the same each time. CI validates
//! it against the schema of the format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cargo_metadata::{DependencyKind, Package, PackageId};
use serde::{Deserialize, Serialize};

use super::build::{Linked, Release};
use super::licences;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sbom {
    bom_format: &'static str,
    spec_version: &'static str,
    version: u32,
    metadata: About,
    components: Vec<Component>,
    dependencies: Vec<Dependency>,
}

#[derive(Serialize)]
struct About {
    timestamp: String,
    component: Component,
    properties: Vec<Property>,
}

#[derive(Serialize)]
struct Property {
    name: &'static str,
    value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Component {
    r#type: &'static str,
    #[serde(rename = "bom-ref")]
    bom_ref: String,
    name: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
    licenses: [Licence; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    external_references: Vec<Reference>,
}

#[derive(Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

#[derive(Serialize)]
struct Licence {
    expression: String,
}

#[derive(Serialize)]
struct Reference {
    r#type: &'static str,
    url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dependency {
    r#ref: String,
    depends_on: BTreeSet<String>,
}

/// What is needed of Cargo.lock.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The bill, as text.
///
/// # Errors
/// What cargo does not know of a package.
pub(super) fn sbom(release: &Release, linked: &Linked) -> Result<String, String> {
    let checksums = checksums(linked)?;
    let mut components = Vec::new();
    let mut program = None;
    for package in &linked.packages {
        let checksum = checksums.get(&(package.name.to_string(), package.version.to_string())).cloned();
        let component = component(package, checksum)?;
        if package.name == "monolock-bin" {
            program = Some(Component { r#type: "application", name: "monolock".to_owned(), ..component });
        } else {
            components.push(component);
        }
    }
    let program = program.ok_or("the program is not among what is linked")?;
    let mut dependencies = dependencies(linked);
    for system in &linked.system {
        let bom_ref = format!("system:{}@{}", system.name.replace(' ', "-"), system.version);
        let program = dependencies.iter_mut().find(|dependency| dependency.r#ref == program.bom_ref);
        program.expect("the program is among them").depends_on.insert(bom_ref.clone());
        dependencies.push(Dependency { r#ref: bom_ref.clone(), depends_on: BTreeSet::new() });
        components.push(Component {
            r#type: "library",
            bom_ref,
            name: system.name.to_owned(),
            version: system.version.clone(),
            description: None,
            hashes: Vec::new(),
            licenses: [Licence { expression: system.licence.to_owned() }],
            purl: None,
            external_references: vec![Reference { r#type: "website", url: system.website.to_owned() }],
        });
    }
    let properties = vec![
        Property { name: "monolock:commit", value: release.commit.clone() },
        Property { name: "monolock:target", value: release.target.clone() },
    ];
    let metadata = About { timestamp: release.time(), component: program, properties };
    let sbom = Sbom { bom_format: "CycloneDX", spec_version: "1.6", version: 1, metadata, components, dependencies };
    serde_json::to_string_pretty(&sbom).map(|text| text + "\n").map_err(|error| error.to_string())
}

fn component(package: &Package, checksum: Option<String>) -> Result<Component, String> {
    let Package { name, version, description, repository, homepage, .. } = package;
    let reference = |r#type, url: &Option<String>| url.clone().map(|url| Reference { r#type, url });
    Ok(Component {
        r#type: "library",
        bom_ref: bom_ref(package),
        name: name.to_string(),
        version: version.to_string(),
        description: description.as_deref().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")),
        hashes: checksum.into_iter().map(|content| Hash { alg: "SHA-256", content }).collect(),
        licenses: [Licence { expression: licences::expression(package)? }],
        purl: Some(bom_ref(package)),
        external_references: [reference("vcs", repository), reference("website", homepage)]
            .into_iter()
            .flatten()
            .collect(),
    })
}

/// The package's URL, which names it in the bill too.
fn bom_ref(package: &Package) -> String {
    // The sign is reserved in such a URL.
    format!("pkg:cargo/{}@{}", package.name, package.version.to_string().replace('+', "%2B"))
}

/// Who calls whom, among what is linked.
fn dependencies(linked: &Linked) -> Vec<Dependency> {
    let references: BTreeMap<&PackageId, String> =
        linked.packages.iter().map(|package| (&package.id, bom_ref(package))).collect();
    let nodes = linked.metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let mut dependencies: Vec<Dependency> = nodes
        .filter_map(|node| {
            let at_run_time = node
                .deps
                .iter()
                .filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
            let depends_on = at_run_time.filter_map(|dependency| references.get(&dependency.pkg)).cloned().collect();
            Some(Dependency { r#ref: references.get(&node.id)?.clone(), depends_on })
        })
        .collect();
    dependencies.sort_by(|one, other| one.r#ref.cmp(&other.r#ref));
    dependencies
}

/// The checksums of packages by name and version, as Cargo.lock has them.
fn checksums(linked: &Linked) -> Result<BTreeMap<(String, String), String>, String> {
    let path = linked.metadata.workspace_root.join("Cargo.lock");
    let wrong = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    let text = fs::read_to_string(&path).map_err(|error| wrong(&error))?;
    let Lock { package } = toml::from_str(&text).map_err(|error| wrong(&error))?;
    let sums = package.into_iter().filter_map(|Locked { name, version, checksum }| Some(((name, version), checksum?)));
    Ok(sums.collect())
}
