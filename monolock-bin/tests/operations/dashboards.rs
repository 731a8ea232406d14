//! What is deployed beside the server knows the server: the dashboard and the alerts name what is exported, and
//! Prometheus's own tools find nothing wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Watched, http_get, words};

type Names = BTreeSet<String>;

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["job", "instance"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn deployed(path: &str) -> String {
    fs::read_to_string(root().join("deploy").join(path)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&deployed("grafana/monolock.json")).unwrap()
}

/// What the alerts ask, by their names.
fn alerts() -> BTreeMap<String, String> {
    let text = deployed("prometheus/alerts.yml");
    let alerts = text.split("- alert: ").skip(1).map(|alert| {
        let expression = alert.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
        (alert.lines().next().unwrap().to_owned(), expression.to_owned())
    });
    alerts.collect()
}

/// All that the dashboard asks, with a duration where Grafana puts one in.
fn questions() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let expressions = targets.chain(annotations).map(|asking| asking["expr"].as_str().unwrap());
    expressions.map(|expression| expression.replace("$__rate_interval", "5m").replace("$__interval", "1m")).collect()
}

/// What there is: each sample's name, with its labels and their values.
fn exported() -> BTreeMap<String, BTreeMap<String, Names>> {
    let watched = Watched::start(words(""));
    let mut exported: BTreeMap<String, BTreeMap<String, Names>> = BTreeMap::new();
    for line in http_get(watched.ops, "/metrics").lines().filter(|line| !line.starts_with('#')) {
        let (sample, _value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let known = exported.entry(name.to_owned()).or_default();
        for (label, value) in labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('=')) {
            known.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
    exported
}

/// A metric that an expression names, and what it asks of its labels.
#[derive(Debug)]
struct Selector {
    name: String,
    /// Label and pattern.
    matchers: Vec<(String, String)>,
}

fn selectors(expression: &str) -> Vec<Selector> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(is_of_a_name) {
        let end = rest[at..].find(|c| !is_of_a_name(c)).map_or(rest.len(), |end| at + end);
        let name = &rest[at..end];
        rest = &rest[end..];
        let Some(inside) = rest.strip_prefix('{') else {
            // Without labels it is a function, a number, or a label to group by, unless it is a metric by its name.
            if name.starts_with("monolock_") || name.starts_with("process_") {
                found.push(Selector { name: name.to_owned(), matchers: Vec::new() });
            }
            continue;
        };
        let (inside, after) = inside.split_once('}').unwrap();
        let matchers = inside.split(", ").map(|matcher| {
            let (label, pattern) = matcher.split_once('=').unwrap();
            (label.to_owned(), pattern.trim_start_matches('~').trim_matches('"').to_owned())
        });
        found.push(Selector { name: name.to_owned(), matchers: matchers.collect() });
        rest = after;
    }
    found
}

/// The labels that an expression groups by.
fn groupings(expression: &str) -> Vec<&str> {
    let lists = expression.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap());
    lists.flat_map(|list| list.split(", ")).collect()
}

#[track_caller]
fn promtool(arguments: &[&str], directory: &Path) {
    let output = Command::new("promtool").args(arguments).current_dir(directory).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && !said.contains("FAILED") && !said.contains("WARN"), "{said}");
}

#[test]
fn promtool_accepts_the_alerts_and_each_fires_when_it_should_and_not_before() {
    let directory = root().join("deploy/prometheus");
    promtool(&["check", "rules", "alerts.yml"], &directory);
    promtool(&["test", "rules", "alerts.test.yml"], &directory);
    let tests = deployed("prometheus/alerts.test.yml");
    for name in alerts().keys() {
        let asks = |line: &&str| line.contains("expr: ALERTS{") && line.contains(&format!("alertname=\"{name}\""));
        assert!(tests.lines().filter(asks).count() >= 2, "{name} is not tested before and after");
        let expected = format!("labels: 'ALERTS{{alertname=\"{name}\", alertstate=\"firing\"");
        assert!(tests.contains(&expected), "{name} fires in no test");
    }
}

#[test]
fn each_alert_says_what_it_means_and_what_to_do() {
    let text = deployed("prometheus/alerts.yml");
    for alert in text.split("- alert: ").skip(1) {
        for field in ["severity: ", "summary: \"", "description: \"", "runbook: \""] {
            let value = alert.lines().find_map(|line| line.trim().strip_prefix(field));
            assert!(value.is_some_and(|value| value.len() > 3), "{alert} has no {field}");
        }
        let severity = alert.lines().find_map(|line| line.trim().strip_prefix("severity: ")).unwrap();
        assert!(["page", "warning"].contains(&severity), "{alert}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_labels_and_values_that_are_exported() {
    let exported = exported();
    let alerts = alerts();
    assert!(alerts.len() > 10 && questions().len() > 30);
    for expression in questions().iter().chain(alerts.values()) {
        let selectors = selectors(expression);
        assert!(!selectors.is_empty(), "{expression}");
        for Selector { name, matchers } in &selectors {
            // This one is Prometheus's own.
            let known = exported.get(name).cloned();
            let known = if name == "up" { Some(BTreeMap::new()) } else { known };
            let known = known.unwrap_or_else(|| panic!("{name} is not exported: {expression}"));
            for (label, pattern) in matchers {
                if ADDED.contains(&label.as_str()) {
                    continue;
                }
                let values = known.get(label).unwrap_or_else(|| panic!("{name} has no label {label}: {expression}"));
                for value in pattern.split('|') {
                    assert!(values.contains(value), "{name} has no {label} {value:?}: {expression}");
                }
            }
            for label in groupings(expression) {
                assert!(ADDED.contains(&label) || known.contains_key(label), "{name} has no {label}: {expression}");
            }
            assert!(matchers.iter().any(|(label, _)| label == "job"), "all jobs are asked: {expression}");
        }
    }
}

#[test]
fn each_metric_that_is_exported_stands_on_the_dashboard() {
    let asked: Names = questions().iter().flat_map(|question| selectors(question)).map(|found| found.name).collect();
    let missing: Vec<String> = exported().into_keys().filter(|name| !asked.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn promtool_parses_all_that_the_dashboard_asks() {
    let directory = tempfile::tempdir().unwrap();
    let rules = questions().into_iter().enumerate().map(|(number, question)| {
        let quoted = Value::from(question);
        format!("      - record: dashboard:question:{number}\n        expr: {quoted}\n")
    });
    let rules = format!("groups:\n  - name: dashboard\n    rules:\n{}", rules.collect::<Vec<_>>().concat());
    fs::write(directory.path().join("rules.yml"), rules).unwrap();
    promtool(&["check", "rules", "rules.yml"], directory.path());
}

/// Where a panel is, in the units of the grid: its left, its top, its right and its bottom.
fn place(panel: &Value) -> [u64; 4] {
    let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
    [side("x"), side("y"), side("x") + side("w"), side("y") + side("h")]
}

#[test]
fn the_dashboard_is_whole() {
    const COLUMNS: u64 = 24;
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let titles: BTreeSet<&str> = panels.iter().map(|panel| panel["title"].as_str().unwrap()).collect();
    assert_eq!(titles.len(), panels.len());
    for (at, panel) in panels.iter().enumerate() {
        let [left, top, right, bottom] = place(panel);
        assert!(left < right && right <= COLUMNS && top < bottom, "{panel}");
        for other in &panels[at + 1..] {
            let [other_left, other_top, other_right, other_bottom] = place(other);
            let is_apart = right <= other_left || other_right <= left || bottom <= other_top || other_bottom <= top;
            assert!(is_apart, "{} lies over {}", panel["title"], other["title"]);
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(["stat", "timeseries"].contains(&panel["type"].as_str().unwrap()), "{panel}");
        assert!(panel["description"].as_str().unwrap().len() > 5, "{}", panel["title"]);
        assert!(["short", "s", "bytes"].contains(&panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap()));
        let targets = panel["targets"].as_array().unwrap();
        let letters: Names = targets.iter().map(|target| target["refId"].as_str().unwrap().to_owned()).collect();
        assert!(!targets.is_empty() && letters.len() == targets.len(), "{}", panel["title"]);
        // Whoever imports it has a source of data by another name.
        for asking in targets.iter().chain([panel]) {
            assert_eq!(asking["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
        for target in targets {
            let (question, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            let shown = legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap());
            for label in shown {
                let is_left = groupings(question).contains(&label)
                    || (!question.contains("sum") && !question.contains("count by") && ADDED.contains(&label));
                assert!(is_left, "{label} is not left of {question}");
            }
        }
    }
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let queried = dashboard["templating"]["list"].as_array().unwrap().iter().filter(|asking| asking["type"] == "query");
    for asking in annotations.chain(queried) {
        assert_eq!(asking["datasource"]["uid"], "${datasource}", "{asking}");
    }
    let variables: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
}

#[test]
fn the_manual_lists_the_alerts() {
    let page = fs::read_to_string(root().join("docs/observability.md")).unwrap();
    let written: Names = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `Monolock")?.split_once('`'))
        .map(|(name, _)| format!("Monolock{name}"))
        .collect();
    assert_eq!(written, alerts().into_keys().collect::<Names>());
}
