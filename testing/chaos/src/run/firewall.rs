//! Packets that vanish on their way in, or are answered with a reset.
//!
//! Rules stand where packets arrive, so the sender's own kernel never hears of it. The rules of a namespace are
//! replaced whole, in one go, and what they have met by then is kept.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use crate::run::Result;
use crate::run::network::inside;
use crate::run::tools::{Filter, call};

/// What happens to packets that arrive in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    /// The fault that it belongs to.
    pub(crate) fault: u32,
    /// Only to packets from there.
    pub(crate) from: Option<Ipv4Addr>,
    pub(crate) deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Drop,
    /// One that is drawn with so many hundredths.
    DropSome(u64),
    /// TCP alone.
    Reset,
}

#[derive(Debug)]
pub(crate) struct Firewall {
    filter: Filter,
    rules: Mutex<BTreeMap<String, Vec<Standing>>>,
}

/// A rule of a namespace.
#[derive(Clone, Copy, Debug)]
struct Standing {
    rule: Rule,
    /// How many packets it had met when the rules of its namespace were last replaced.
    met: u64,
}

impl Firewall {
    pub(crate) const fn new(filter: Filter) -> Self {
        Self { filter, rules: Mutex::new(BTreeMap::new()) }
    }

    /// Adds a rule; it holds when this returns.
    pub(crate) fn add(&self, namespace: &str, rule: Rule) -> Result<()> {
        self.change(namespace, |rules| rules.push(Standing { rule, met: 0 }))
    }

    /// Takes the rules of a fault away.
    pub(crate) fn remove(&self, namespace: &str, fault: u32) -> Result<()> {
        self.change(namespace, |rules| rules.retain(|Standing { rule, .. }| rule.fault != fault))
    }

    /// How many packets the rules of a fault have met in this namespace.
    pub(crate) fn met(&self, namespace: &str, fault: u32) -> Result<u64> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let of_namespace = rules.get(namespace).map_or(&[][..], Vec::as_slice);
        let counts = self.count(namespace, of_namespace)?;
        let of_fault = of_namespace.iter().zip(counts).filter(|(Standing { rule, .. }, _)| rule.fault == fault);
        Ok(of_fault.map(|(_, count)| count).sum())
    }

    /// How many packets each of these rules has met, which are those that stand.
    fn count(&self, namespace: &str, standing: &[Standing]) -> Result<Vec<u64>> {
        if standing.is_empty() {
            return Ok(Vec::new());
        }
        let counts: Vec<u64> = match self.filter {
            Filter::Nft => {
                let listed = call(inside(namespace, "nft").args(["list", "table", "inet", "chaos"]), "")?;
                let counts = listed.split("counter packets ").skip(1);
                counts.filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect()
            }
            Filter::Iptables => {
                let listed = call(inside(namespace, "iptables-save").args(["-c", "-t", "filter"]), "")?;
                let counts = listed.lines().filter(|line| line.contains("] -A INPUT"));
                counts.filter_map(|line| line.strip_prefix('[')?.split(':').next()?.parse().ok()).collect()
            }
        };
        Ok(standing.iter().zip(counts).map(|(Standing { met, .. }, count)| met + count).collect())
    }

    fn change(&self, namespace: &str, change: impl FnOnce(&mut Vec<Standing>)) -> Result<()> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let of_namespace = rules.entry(namespace.to_owned()).or_default();
        // Those that replace them count anew.
        let counts = self.count(namespace, of_namespace)?;
        for (standing, met) in of_namespace.iter_mut().zip(counts) {
            standing.met = met;
        }
        change(of_namespace);
        match self.filter {
            Filter::Nft => {
                let lines: String = of_namespace.iter().map(|Standing { rule, .. }| rule.for_nft() + "\n").collect();
                let text = format!(
                    "table inet chaos\ndelete table inet chaos\ntable inet chaos {{\nchain arriving {{\n\
                     type filter hook input priority 0; policy accept;\n{lines}}}\n}}\n"
                );
                call(inside(namespace, "nft").args(["-f", "-"]), &text)?;
            }
            Filter::Iptables => {
                let lines: String =
                    of_namespace.iter().map(|Standing { rule, .. }| rule.for_iptables() + "\n").collect();
                let text = format!(
                    "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{lines}COMMIT\n"
                );
                call(&mut inside(namespace, "iptables-restore"), &text)?;
            }
        }
        Ok(())
    }
}

impl Rule {
    fn for_nft(&self) -> String {
        let from = self.from.map_or_else(String::new, |from| format!("ip saddr {from} "));
        match self.deed {
            Deed::Drop => format!("{from}counter drop"),
            Deed::DropSome(percent) => format!("{from}numgen random mod 100 < {percent} counter drop"),
            Deed::Reset => format!("{from}meta l4proto tcp counter reject with tcp reset"),
        }
    }

    fn for_iptables(&self) -> String {
        let from = self.from.map_or_else(String::new, |from| format!("-s {from} "));
        match self.deed {
            Deed::Drop => format!("-A INPUT {from}-j DROP"),
            Deed::DropSome(percent) => {
                format!("-A INPUT {from}-m statistic --mode random --probability 0.{percent:02} -j DROP")
            }
            Deed::Reset => format!("-A INPUT {from}-p tcp -j REJECT --reject-with tcp-reset"),
        }
    }
}
