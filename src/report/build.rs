//! From summaries to a document: what stands in a report, and in which order.
use super::document::{Block, Cell, Document, Head, Picture, Rich, Table, code, foreign, plain, strong};
use super::names;
use super::number;
use super::results::{self, flags, verdict};
use crate::metric::summary::{Better, CellSummary, RunSummary, Verdict};

/// The document of `runs`; `pictures` has the figures of each run.
pub fn document(runs: &[RunSummary], pictures: Vec<Vec<Picture>>) -> Document {
    let mut writer = Writer::default();
    let single = runs.len() == 1;
    let title = match runs {
        [run] => run.question.clone(),
        _ => format!("Report on {} runs", runs.len()),
    };
    if !single {
        writer.heading(1, "top", vec![plain(title.clone())]);
        writer.overview(runs);
    }
    let mut pictures = pictures.into_iter();
    for (index, run) in runs.iter().enumerate() {
        let id = format!("run-{}", index + 1);
        if !single {
            writer.document.contents.push((id.clone(), run.run_id.clone()));
        }
        writer.run(run, &id, if single { 1 } else { 2 }, pictures.next().unwrap_or_default());
    }
    writer.document.title = title;
    writer.document
}

#[derive(Default)]
struct Writer {
    document: Document,
    tables: usize,
    figures: usize,
}

impl Writer {
    fn push(&mut self, block: Block) {
        self.document.blocks.push(block);
    }

    fn heading(&mut self, level: usize, id: &str, text: Rich) {
        self.push(Block::Heading { level, id: id.to_owned(), text });
    }

    fn table(&mut self, mut table: Table) {
        self.tables += 1;
        table.number = self.tables;
        self.push(Block::Table(table));
    }

    fn words_table(&mut self, mut caption: Rich, runs: &[RunSummary], heads: Vec<Head>, rows: Vec<Vec<Cell>>) {
        caption.extend(flags(runs));
        self.table(Table { number: 0, caption, heads, rows, notes: vec![] });
    }

    fn picture(&mut self, mut picture: Picture) {
        self.figures += 1;
        picture.number = self.figures;
        self.push(Block::Figure(picture));
    }

    fn overview(&mut self, runs: &[RunSummary]) {
        let heads = vec![
            Head::words("run"),
            Head::words("question"),
            Head::words("verdict"),
            Head::numbers("answered / issued", "requests"),
            Head::words("weights"),
            Head::words("started"),
            Head::words("plan"),
        ];
        let rows = runs.iter().map(|run| {
            let text = format!("{} / {}", number::count(run.rows.ok), number::count(run.rows.issued));
            vec![
                Cell::foreign(&run.run_id),
                Cell::foreign(&run.question),
                Cell::words(verdict(run.verdict).to_uppercase()),
                Cell { text, sort: Some(run.rows.ok as f64), ..Cell::default() },
                Cell::words(if run.synthetic { "random: speed only" } else { "as named" }),
                Cell::foreign(&run.started_utc),
                Cell::foreign(&run.identity),
            ]
        });
        self.words_table(vec![plain("The runs.")], runs, heads, rows.collect());
        for workload in workloads(runs) {
            self.table(results::overview(runs, &workload));
        }
    }

    fn run(&mut self, run: &RunSummary, id: &str, level: usize, mut pictures: Vec<Picture>) {
        self.heading(level, id, vec![foreign(&run.question)]);
        self.verdict(run);
        if run.synthetic {
            let text =
                "Speed only: random weights. The model's answers mean nothing; only times and rates are measured.";
            self.push(Block::Banner(vec![plain(text)]));
        }
        let mut facts =
            vec![plain("Run "), code(&run.run_id), plain(" of experiment "), foreign(&run.name), plain(", started ")];
        facts.extend([
            foreign(&run.started_utc),
            plain(", plan "),
            code(&run.identity),
            plain(format!(". {}", counts(run))),
        ]);
        self.push(Block::Paragraph(facts));
        if !run.client_error.is_empty() {
            self.push(Block::List(run.client_error.iter().map(|line| vec![foreign(line)]).collect()));
        }

        let section = level + 1;
        let anchor = |name: &str| format!("{id}-{name}");
        self.heading(section, &anchor("results"), vec![plain("Results")]);
        let mut further = vec![];
        let mut not_measured = vec![];
        if run.cells.is_empty() {
            self.push(Block::Paragraph(vec![plain("No cell was run: nothing was measured (n=0).")]));
        }
        for (index, workload) in workloads(std::slice::from_ref(run)).iter().enumerate() {
            let cells: Vec<&CellSummary> = run.cells.iter().filter(|cell| cell.workload == *workload).collect();
            self.heading(section + 1, &anchor(&format!("workload-{}", index + 1)), vec![foreign(workload)]);
            let (here, elsewhere) =
                pictures.into_iter().partition::<Vec<_>, _>(|picture| picture.workload == *workload);
            pictures = elsewhere;
            here.into_iter().for_each(|picture| self.picture(picture));
            let results = results::tables(run, workload, &cells);
            results.primary.into_iter().for_each(|table| self.table(table));
            further.extend(results.further);
            not_measured.extend(results.not_measured.into_iter().map(|family| (workload.clone(), family)));
        }
        self.comparisons(run, section, &anchor("comparisons"));
        self.arms(run, section, &anchor("arms"));
        self.failures(run, section, &anchor("failures"));
        self.warnings(run, section, &anchor("warnings"));
        if !further.is_empty() || !not_measured.is_empty() {
            self.heading(section, &anchor("further"), vec![plain("Further measures")]);
            further.into_iter().for_each(|table| self.table(table));
            if !not_measured.is_empty() {
                let mut text = vec![plain("Not measured: ")];
                for (index, (workload, family)) in not_measured.into_iter().enumerate() {
                    text.extend((index > 0).then(|| plain(", ")));
                    text.extend([code(family), plain(" in "), foreign(workload)]);
                }
                text.push(plain("."));
                self.push(Block::Paragraph(text));
            }
        }
        self.definitions(run, section, &anchor("definitions"));
        self.provenance(run, section, &anchor("provenance"));
        self.reproduce(run, section, &anchor("reproduce"));
    }

    fn verdict(&mut self, run: &RunSummary) {
        let word = verdict(run.verdict);
        let text = match run.verdict {
            Verdict::Valid => "No rule was broken: the run supports its claim.",
            Verdict::Invalid => "A rule was broken: the numbers below do not support the claim.",
            Verdict::Partial => "The run was not finished: the numbers below rest on what was measured until then.",
        };
        self.push(Block::Verdict { word, text: vec![plain(text)] });
        if !run.reasons.is_empty() {
            let reasons =
                run.reasons.iter().map(|reason| vec![strong(reason.rule), plain(": "), foreign(&reason.message)]);
            self.push(Block::List(reasons.collect()));
        }
    }

    fn comparisons(&mut self, run: &RunSummary, level: usize, id: &str) {
        if run.comparisons.is_empty() {
            return;
        }
        self.heading(level, id, vec![plain("Arm against arm")]);
        let heads = vec![
            Head::words("cell"),
            Head::words("metric"),
            Head::words("arm"),
            Head::words("baseline"),
            Head::numbers("arm / baseline", "ratio"),
            Head::numbers("noise floor", "± %"),
            Head::words("verdict"),
        ];
        let caption = vec![plain(
            "Ratios of arms, with the 95 % interval over n blocks. A difference inside the noise floor is no difference.",
        )];
        let mut table = Table { number: 0, caption, heads, rows: vec![], notes: vec![] };
        table.caption.extend(flags(std::slice::from_ref(run)));
        for comparison in &run.comparisons {
            let described = names::describe(comparison.metric);
            let metric = format!("{} {}", described.label, described.statistic);
            let floor = comparison.noise_floor.filter(|floor| floor.is_finite()).map(|floor| floor * 100.0);
            let ratio = results::estimate(Some(&comparison.ratio), &mut table);
            table.rows.push(vec![
                Cell::foreign(&comparison.cell),
                Cell::words(metric.trim()),
                Cell::foreign(&comparison.arm),
                Cell::foreign(&comparison.baseline),
                ratio,
                Cell {
                    text: floor.map_or(number::NOTHING.to_owned(), |f| format!("{f:.1}")),
                    sort: floor,
                    ..Cell::default()
                },
                Cell::foreign(&comparison.verdict),
            ]);
        }
        self.table(table);
    }

    fn arms(&mut self, run: &RunSummary, level: usize, id: &str) {
        if run.arms.is_empty() {
            return;
        }
        self.heading(level, id, vec![plain("Arms")]);
        let mut settings: Vec<&str> = vec![];
        for (name, _) in run.arms.iter().flat_map(|arm| &arm.differs) {
            if !settings.contains(&name.as_str()) {
                settings.push(name);
            }
        }
        let mut heads = vec![Head::words("arm"), Head::words("target")];
        heads.extend(settings.iter().map(|name| Head::words(*name)));
        let rows = run.arms.iter().map(|arm| {
            let value = |name: &str| {
                arm.differs
                    .iter()
                    .find(|(n, _)| n == name)
                    .map_or(Cell::words(number::NOTHING), |(_, v)| Cell::foreign(v))
            };
            let mut row = vec![Cell::foreign(&arm.name), Cell::foreign(&arm.target)];
            row.extend(settings.iter().map(|name| value(name)));
            row
        });
        let words = if settings.is_empty() { "The arm." } else { "The arms, and every setting in which they differ." };
        self.words_table(vec![plain(words)], std::slice::from_ref(run), heads, rows.collect());
    }

    fn failures(&mut self, run: &RunSummary, level: usize, id: &str) {
        self.heading(level, id, vec![plain("Failures")]);
        if run.failures.is_empty() {
            let text = match run.rows {
                rows if rows.issued == 0 => "No request was issued.".to_owned(),
                rows if rows.failed + rows.cancelled + rows.shed == 0 => {
                    format!("None in {} issued requests.", number::count(rows.issued))
                }
                rows => format!(
                    "{} failed, {} cancelled, {} never sent; no causes were kept.",
                    number::count(rows.failed),
                    number::count(rows.cancelled),
                    number::count(rows.shed)
                ),
            };
            self.push(Block::Paragraph(vec![plain(text)]));
            return;
        }
        let heads = vec![
            Head::words("arm"),
            Head::words("cell"),
            Head::words("outcome"),
            Head::numbers("count", "requests"),
            Head::words("one cause, as reported"),
        ];
        let rows = run.failures.iter().map(|failure| {
            vec![
                Cell::foreign(&failure.arm),
                Cell::foreign(&failure.cell),
                Cell::foreign(failure.outcome.word()),
                Cell::count(failure.count),
                failure.example.as_deref().map_or(Cell::words(number::NOTHING), Cell::foreign),
            ]
        });
        self.words_table(
            vec![plain("Requests without an answer. No time or rate above counts them.")],
            std::slice::from_ref(run),
            heads,
            rows.collect(),
        );
    }

    fn warnings(&mut self, run: &RunSummary, level: usize, id: &str) {
        if run.warnings.is_empty() && run.segments <= 1 && run.superseded == 0 {
            return;
        }
        self.heading(level, id, vec![plain("Warnings")]);
        let mut items: Vec<Rich> = run.warnings.iter().map(|warning| vec![foreign(warning)]).collect();
        if run.segments > 1 || run.superseded > 0 {
            items.push(vec![plain(format!(
                "the run was interrupted and resumed: {} segments, {} rows replaced by a later attempt",
                number::count(run.segments),
                number::count(run.superseded)
            ))]);
        }
        self.push(Block::List(items));
    }

    fn definitions(&mut self, run: &RunSummary, level: usize, id: &str) {
        let mut used: Vec<&'static str> = run.cells.iter().flat_map(|cell| cell.metrics.keys().copied()).collect();
        used.sort_unstable();
        used.dedup();
        let mut described: Vec<names::Described> = used.into_iter().map(names::describe).collect();
        described.sort_by(|a, b| (a.rank, &a.family).cmp(&(b.rank, &b.family)));
        described.dedup_by(|a, b| a.family == b.family);
        if described.is_empty() {
            return;
        }
        self.heading(level, id, vec![plain("What the numbers mean")]);
        let heads = vec![Head::words("metric"), Head::words("unit"), Head::words("better"), Head::words("meaning")];
        let rows = described.into_iter().map(|metric| {
            let better = match metric.better {
                Better::Higher => "more",
                Better::Lower => "less",
                Better::Neither => number::NOTHING,
            };
            let meaning = if metric.meaning.is_empty() { number::NOTHING } else { metric.meaning };
            vec![Cell::foreign(metric.family), Cell::words(metric.unit), Cell::words(better), Cell::foreign(meaning)]
        });
        self.words_table(vec![plain("Metrics in this report.")], std::slice::from_ref(run), heads, rows.collect());
        let rules = [
            "Only answered requests of the measured part count; warm-up requests and failures are left out of every time and rate and are counted apart.",
            "A percentile is interpolated linearly at (n − 1)·p and needs n of at least 7 (p50), 44 (p90), 90 (p95), 459 (p99); below that it is –.",
            "Intervals over repeats are Student t on log values, 95 %. n is the number of repeats for an interval over repeats, of requests or gaps for a percentile.",
            "A number in grey, with a note, holds more than 5 % of the client's own error, as `inferlab calibrate` found it.",
            "– means that nothing was measured or n is too small. It never stands for zero.",
        ];
        self.push(Block::List(rules.into_iter().map(|rule| vec![plain(rule)]).collect()));
    }

    fn provenance(&mut self, run: &RunSummary, level: usize, id: &str) {
        self.heading(level, id, vec![plain("Provenance")]);
        if run.provenance.is_empty() {
            self.push(Block::Paragraph(vec![plain("None was recorded.")]));
            return;
        }
        let heads = vec![Head::words("group"), Head::words("name"), Head::words("value")];
        let rows = run.provenance.iter().flat_map(|(group, values)| {
            values
                .iter()
                .map(move |(name, value)| vec![Cell::foreign(group), Cell::foreign(name), Cell::foreign(value)])
        });
        self.words_table(
            vec![plain("Where and with what it was measured.")],
            std::slice::from_ref(run),
            heads,
            rows.collect(),
        );
    }

    fn reproduce(&mut self, run: &RunSummary, level: usize, id: &str) {
        self.heading(level, id, vec![plain("How to reproduce")]);
        let dir = shell_word(&format!("runs/{}", run.run_id));
        let identity = crate::inert::terminal_line(&run.identity).into_owned();
        self.push(Block::Paragraph(vec![
            plain("The run's folder holds the resolved plan (plan.json) and every observed request (log.jsonl). Running the same experiment file again gives plan "),
            code(&run.identity),
            plain(" unless something it depends on changed."),
        ]));
        if let Some(command) = started_as(run) {
            self.push(Block::Paragraph(vec![plain("It was started as "), code(command), plain(".")]));
        }
        self.push(Block::Commands(format!(
            "inferlab verify {dir}        # is the log whole?\ninferlab report {dir}        # this report again, from the log\ninferlab run EXPERIMENT.yaml        # measure again: plan {identity}"
        )));
    }
}

/// The command line of the last segment; secrets in it were left out when it was recorded.
fn started_as(run: &RunSummary) -> Option<String> {
    let (_, build) = run.provenance.iter().find(|(group, _)| group == "build")?;
    let (_, arguments) = build.iter().find(|(name, _)| name == "arguments")?;
    arguments.contains(' ').then(|| arguments.clone())
}

fn workloads(runs: &[RunSummary]) -> Vec<String> {
    let mut workloads: Vec<String> = vec![];
    for cell in runs.iter().flat_map(|run| &run.cells) {
        if !workloads.contains(&cell.workload) {
            workloads.push(cell.workload.clone());
        }
    }
    workloads
}

fn counts(run: &RunSummary) -> String {
    let rows = run.rows;
    let [issued, ok, failed, cancelled, shed, warmup] =
        [rows.issued, rows.ok, rows.failed, rows.cancelled, rows.shed, rows.warmup].map(number::count);
    format!(
        "{ok} of {issued} requests answered; {failed} failed, {cancelled} cancelled, {shed} never sent; {warmup} warm-up requests apart."
    )
}

/// A word a shell reads as it stands.
fn shell_word(text: &str) -> String {
    let text = crate::inert::terminal_line(text);
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c)) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
