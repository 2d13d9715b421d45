//! Line charts as SVG text.

use std::fmt::Write as _;
use std::fs;

use super::stats::folder;
use super::{Race, Who};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 60.0;
/// In the order of [`Who::ALL`].
const COLOURS: [&str; 3] = ["#888888", "#c0392b", "#2471a3"];

/// An axis that begins at its first mark and ends at its last.
pub struct Axis {
    pub title: &'static str,
    pub marks: Vec<(f64, String)>,
    pub is_log: bool,
}

impl Axis {
    /// Creates an axis with marks at powers of ten, from below `min` to above `max`.
    pub fn log(title: &'static str, min: f64, max: f64) -> Self {
        let powers = min.log10().floor() as i32..=max.log10().ceil() as i32;
        let marks = powers.map(|power| 10_f64.powi(power)).map(|at| (at, format!("{at}")));
        Self { title, marks: marks.collect(), is_log: true }
    }

    /// Creates an axis from zero to `max`, with five marks.
    pub fn linear(title: &'static str, max: f64) -> Self {
        let marks = (0..=5).map(|fifth| max * f64::from(fifth) / 5.0);
        Self { title, marks: marks.map(|at| (at, format!("{at:.0}"))).collect(), is_log: false }
    }

    /// Returns the position of a value between the ends, 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.log10() } else { value };
        let (first, last) = (&self.marks[0].0, &self.marks[self.marks.len() - 1].0);
        ((scale(value) - scale(*first)) / (scale(*last) - scale(*first))).clamp(0.0, 1.0)
    }
}

/// Writes `NAME.svg`, with one line for each contestant that has points.
pub fn write(
    name: &str,
    title: &str,
    (x, y): (Axis, Axis),
    lines: &[Vec<(f64, f64)>; 3],
) -> anyhow::Result<()> {
    let across = |value| MARGIN + x.place(value) * (WIDTH - 2.0 * MARGIN);
    let up = |value| HEIGHT - MARGIN - y.place(value) * (HEIGHT - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' \
         font-family='sans-serif' font-size='12'>\n\
         <rect width='100%' height='100%' fill='white'/>\n"
    );
    text(&mut svg, (WIDTH / 2.0, 24.0), "middle", title)?;
    text(&mut svg, (WIDTH / 2.0, HEIGHT - 16.0), "middle", x.title)?;
    text(&mut svg, (8.0, MARGIN - 14.0), "start", y.title)?;
    for (at, label) in &x.marks {
        rule(&mut svg, (across(*at), MARGIN), (across(*at), HEIGHT - MARGIN))?;
        text(&mut svg, (across(*at), HEIGHT - MARGIN + 16.0), "middle", label)?;
    }
    for (at, label) in &y.marks {
        rule(&mut svg, (MARGIN, up(*at)), (WIDTH - MARGIN, up(*at)))?;
        text(&mut svg, (MARGIN - 6.0, up(*at) + 4.0), "end", label)?;
    }
    for ((who, colour), points) in Who::ALL.iter().zip(COLOURS).zip(lines) {
        let points: Vec<String> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", across(*x), up(*y))).collect();
        let points = points.join(" ");
        writeln!(
            svg,
            "<polyline fill='none' stroke='{colour}' stroke-width='2' points='{points}'/>"
        )?;
        let x = WIDTH - MARGIN - 180.0 + 70.0 * f64::from(*who as u8);
        let y = MARGIN - 14.0;
        writeln!(svg, "<text x='{x}' y='{y}' fill='{colour}'>{}</text>", who.name())?;
    }
    svg.push_str("</svg>\n");
    Ok(fs::write(folder()?.join(format!("{name}.svg")), svg)?)
}

/// Draws how long the slowest acquisitions take: one in ten, in a hundred, in a thousand.
pub fn latencies(name: &str, title: &str, race: &Race) -> anyhow::Result<()> {
    let parts: Vec<f64> = (0..=60).map(|step| 10_f64.powf(f64::from(step) / 20.0)).collect();
    let lines = race.outcomes.each_ref().map(|rounds| {
        let mut all: Vec<u64> =
            rounds.iter().flat_map(|outcome| outcome.samples.acquire.iter().copied()).collect();
        all.sort_unstable();
        let at = |one_in: f64| all[((all.len() - 1) as f64 * (1.0 - 1.0 / one_in)) as usize];
        parts.iter().map(|one_in| (*one_in, at(*one_in) as f64 / 1e3)).collect::<Vec<_>>()
    });
    let figures = || lines.iter().flatten().map(|(_, us)| *us);
    let (min, max) = (figures().fold(f64::MAX, f64::min), figures().fold(1.0, f64::max));
    let x = Axis {
        title: "this part of the acquisitions is faster",
        marks: [(1.0, "0"), (2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1000.0, "99.9 %")]
            .map(|(at, label)| (at, label.to_owned()))
            .to_vec(),
        is_log: true,
    };
    write(name, title, (x, Axis::log("microseconds", min, max)), &lines)
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) -> anyhow::Result<()> {
    Ok(writeln!(svg, "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{text}</text>")?)
}

fn rule(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> anyhow::Result<()> {
    Ok(writeln!(
        svg,
        "<line x1='{x1:.1}' y1='{y1:.1}' x2='{x2:.1}' y2='{y2:.1}' stroke='#dddddd'/>"
    )?)
}
