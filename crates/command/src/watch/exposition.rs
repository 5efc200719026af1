//! Prometheus' text format (version 0.0.4), which every scraper reads.

use std::fmt::Write;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// Its buckets hold what exists now, and may become empty again.
    GaugeHistogram,
}

pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A metric with all its time series.
#[derive(Debug, Clone)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// Each with the end of its name, `_bucket` for example.
    samples: Vec<(&'static str, String)>,
}

impl Family {
    pub fn new(name: &'static str, kind: Kind, help: &'static str) -> Family {
        Family { name, kind, help, samples: Vec::new() }
    }

    /// A family of one time series without labels.
    pub fn single(name: &'static str, kind: Kind, help: &'static str, value: f64) -> Family {
        let mut family = Family::new(name, kind, help);
        family.add(&vec![], value);
        family
    }

    pub fn add(&mut self, labels: &Labels, value: f64) {
        self.sample("", labels, value);
    }

    /// Adds a distribution: the count of each bucket alone, the bounds of all but the last, and the sum of the values.
    pub fn add_distribution(&mut self, labels: &Labels, bounds: &[f64], counts: &[usize], sum: f64) {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]).map(number);
        let mut total = 0;
        for (bound, count) in bounds.zip(counts) {
            total += count;
            let mut labels = labels.clone();
            labels.push(("le", &bound));
            self.sample("_bucket", &labels, total as f64);
        }
        self.sample("_gcount", labels, total as f64);
        self.sample("_gsum", labels, sum);
    }

    fn sample(&mut self, end: &'static str, labels: &Labels, value: f64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.samples.push((end, format!("{labels} {}", number(value))));
    }

    fn write(&self, text: &mut String) {
        let name = self.name;
        // The format has no gauge histograms: their buckets are a histogram, count and sum are gauges of their own.
        let parts: &[(&str, &str, &str)] = match self.kind {
            Kind::Counter => &[("", "", "counter")],
            Kind::Gauge => &[("", "", "gauge")],
            Kind::GaugeHistogram => {
                &[("_bucket", "", "histogram"), ("_gcount", "_gcount", "gauge"), ("_gsum", "_gsum", "gauge")]
            }
        };
        for (end, declared, kind) in parts {
            let _ = writeln!(text, "# HELP {name}{declared} {}\n# TYPE {name}{declared} {kind}", self.help);
            for (_, rest) in self.samples.iter().filter(|(of, _)| of == end) {
                let _ = writeln!(text, "{name}{end}{rest}");
            }
        }
    }
}

pub fn text(families: &[Family]) -> String {
    let mut text = String::new();
    families.iter().for_each(|family| family.write(&mut text));
    text
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns a number as Go's libraries write it, so that a bucket has the same name wherever it comes from.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    if value.abs() < 1e6 || !value.is_finite() {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}e+{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        let written = [0.0, 0.25, 1.0, 1e5, 1e6, 3e7, 1.5e12, f64::INFINITY].map(number);
        assert_eq!(written, ["0.0", "0.25", "1.0", "100000.0", "1e+06", "3e+07", "1.5e+12", "+Inf"]);
    }

    #[test]
    fn distributions_are_cumulative_and_labels_are_escaped() {
        let mut family = Family::new("rate", Kind::GaugeHistogram, "Rates");
        family.add_distribution(&vec![("of", "a\"b\\c\nd")], &[1.0, 2.0], &[3, 0, 1], 7.5);
        let of = "of=\"a\\\"b\\\\c\\nd\"";
        assert_eq!(
            text(&[family, Family::single("seen_total", Kind::Counter, "Seen", 2.0)]),
            format!(
                "# HELP rate Rates\n# TYPE rate histogram\nrate_bucket{{{of},le=\"1.0\"}} 3.0\n\
                 rate_bucket{{{of},le=\"2.0\"}} 3.0\nrate_bucket{{{of},le=\"+Inf\"}} 4.0\n\
                 # HELP rate_gcount Rates\n# TYPE rate_gcount gauge\nrate_gcount{{{of}}} 4.0\n\
                 # HELP rate_gsum Rates\n# TYPE rate_gsum gauge\nrate_gsum{{{of}}} 7.5\n\
                 # HELP seen_total Seen\n# TYPE seen_total counter\nseen_total 2.0\n"
            )
        );
    }
}
