//! Prometheus' two text formats: OpenMetrics 1.0, and the older format 0.0.4.

use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    Older,
}

impl Format {
    /// Returns the format that a scraper wants, from its header Accept.
    pub fn wanted(accept: &str) -> Format {
        let is_openmetrics = |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim() == OPENMETRICS);
        if accept.split(',').any(is_openmetrics) {
            Format::OpenMetrics
        } else {
            Format::Older
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Older => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

const OPENMETRICS: &str = "application/openmetrics-text";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// Its buckets hold what exists now, and may become empty again.
    GaugeHistogram,
    Info,
}

pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// A metric with all its time series.
#[derive(Debug, Clone)]
pub struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// Each with the end of its name, `_total` for example.
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
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::GaugeHistogram => "",
        };
        self.sample(end, labels, value);
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

    fn write(&self, format: Format, text: &mut String) {
        let declared = match (format, self.kind) {
            (Format::Older, Kind::Counter) => ("_total", "counter"),
            (Format::Older, Kind::Info) => ("_info", "gauge"),
            // It has no other kind for buckets.
            (Format::Older, Kind::GaugeHistogram) => ("", "histogram"),
            (_, Kind::Counter) => ("", "counter"),
            (_, Kind::Gauge) => ("", "gauge"),
            (_, Kind::GaugeHistogram) => ("", "gaugehistogram"),
            (_, Kind::Info) => ("", "info"),
        };
        self.declare(declared, text);
        let is_apart = |end: &str| format == Format::Older && matches!(end, "_gcount" | "_gsum");
        self.write_samples(|end| !is_apart(end), text);
        for apart in ["_gcount", "_gsum"] {
            if self.kind == Kind::GaugeHistogram && is_apart(apart) {
                self.declare((apart, "gauge"), text);
                self.write_samples(|end| end == apart, text);
            }
        }
    }

    fn declare(&self, (end, kind): (&str, &str), text: &mut String) {
        let name = self.name;
        let _ = writeln!(text, "# HELP {name}{end} {}\n# TYPE {name}{end} {kind}", self.help);
    }

    fn write_samples(&self, chosen: impl Fn(&str) -> bool, text: &mut String) {
        for (end, rest) in self.samples.iter().filter(|(end, _)| chosen(end)) {
            let _ = writeln!(text, "{}{end}{rest}", self.name);
        }
    }
}

pub fn text(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    families.iter().for_each(|family| family.write(format, &mut text));
    if format == Format::OpenMetrics {
        text += "# EOF\n";
    }
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
    fn a_scraper_gets_the_format_that_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::wanted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::wanted("text/plain;version=0.0.4, application/openmetrics-text"), Format::OpenMetrics);
        assert_eq!(Format::wanted("*/*"), Format::Older);
        assert_eq!(Format::wanted(""), Format::Older);
    }

    #[test]
    fn distributions_are_cumulative_and_labels_are_escaped() {
        let mut family = Family::new("rate", Kind::GaugeHistogram, "Rates");
        family.add_distribution(&vec![("of", "a\"b\\c\nd")], &[1.0, 2.0], &[3, 0, 1], 7.5);
        let of = "of=\"a\\\"b\\\\c\\nd\"";
        assert_eq!(
            text(std::slice::from_ref(&family), Format::OpenMetrics),
            format!(
                "# HELP rate Rates\n# TYPE rate gaugehistogram\nrate_bucket{{{of},le=\"1.0\"}} 3.0\n\
                 rate_bucket{{{of},le=\"2.0\"}} 3.0\nrate_bucket{{{of},le=\"+Inf\"}} 4.0\nrate_gcount{{{of}}} 4.0\n\
                 rate_gsum{{{of}}} 7.5\n# EOF\n"
            )
        );
        let older = text(&[family, Family::single("seen", Kind::Counter, "Seen", 2.0)], Format::Older);
        assert!(older.contains("# TYPE rate histogram\n") && older.contains("# TYPE rate_gsum gauge\nrate_gsum{"));
        assert!(older.ends_with("# HELP seen_total Seen\n# TYPE seen_total counter\nseen_total 2.0\n"));
    }
}
