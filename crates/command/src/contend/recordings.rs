//! Recordings: what threads did, as a Parquet file, and off-times for a replay, from such a file or from a table of the
//! user's own. python/brobust/contention/recordings.py reads the same ones, and datasets of `brobust run`.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use brobust_contention::{clock, Interval, Recording, State, NOISE_NS};
use brobust_host::{general, Refusal, Result};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;

use super::vcpus::Vcpu;
use crate::files::{self, MAX_RECORDING};

/// As in python/brobust/files.py, like the next. Three years: in ns such times, and sums of them, fit into 64 bits.
const MAX_TIME_S: f64 = 1e8;
/// A small Parquet file may hold any number of equal rows. No recording becomes longer.
pub const MAX_ROWS: usize = 20_000_000;
/// Bytes of a number or a word of a row. A small file may hold one of any length, which as many rows name.
const MAX_CELL: usize = 256;
/// More than any VM has. A small file may name another thread in every row, or each by a long name: names are kept once.
const MAX_THREADS: usize = 10_000;
/// Rows that are written at a time: what is written is kept a second time in memory.
const GROUP_ROWS: usize = if cfg!(test) { 2 } else { 1_000_000 };

const COLUMNS: &str = "message recording {
    required int64 thread;
    optional int64 vcpu;
    required binary kind (STRING);
    required double start_s;
    required double duration_ms;
}";

/// The file's metadata says under this name when it began, seconds since 1970: what `brobust watch --record` has recorded
/// on the same host at that time can be drawn beside it.
const BEGIN: &str = "begin_unix_s";

/// Writes what each thread did. Its times count from `begin_ns`. `file` is then whole, or as it was before.
pub fn write(file: &Path, recordings: &[Recording], vcpus: &[Vcpu], begin_ns: u64) -> Result<()> {
    let unforeseen = |error: ParquetError| Refusal::failed(error.to_string());
    files::replace(file, &table(recordings, vcpus, begin_ns).map_err(unforeseen)?)
}

/// Returns the content of a recording's file.
fn table(recordings: &[Recording], vcpus: &[Vcpu], begin_ns: u64) -> std::result::Result<Vec<u8>, ParquetError> {
    let schema = parse_message_type(COLUMNS)?;
    let mut out = Vec::new();
    let compression = Compression::ZSTD(ZstdLevel::default());
    let begun = KeyValue::new(BEGIN.to_owned(), unix_s(begin_ns).to_string());
    let properties =
        WriterProperties::builder().set_compression(compression).set_key_value_metadata(Some(vec![begun])).build();
    let mut writer = SerializedFileWriter::new(&mut out, Arc::new(schema), Arc::new(properties))?;
    let mut rest = recordings.iter().flat_map(|one| one.intervals.iter().map(move |interval| (one.tid, interval)));
    loop {
        let rows: Vec<(i32, &Interval)> = rest.by_ref().take(GROUP_ROWS).collect();
        if rows.is_empty() {
            break;
        }
        write_group(writer.next_row_group()?, &rows, vcpus, begin_ns)?;
    }
    writer.close()?;
    Ok(out)
}

fn write_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    rows: &[(i32, &Interval)],
    vcpus: &[Vcpu],
    begin_ns: u64,
) -> std::result::Result<(), ParquetError> {
    let number = |tid: i32| vcpus.iter().find(|vcpu| vcpu.thread.pid == tid)?.number.map(i64::from);
    let numbers: Vec<Option<i64>> = rows.iter().map(|(tid, _)| number(*tid)).collect();
    let is_known: Vec<i16> = numbers.iter().map(|number| i16::from(number.is_some())).collect();
    let threads = rows.iter().map(|(tid, _)| i64::from(*tid));
    let kinds = rows.iter().map(|(_, one)| kind(one.state, one.duration_ns).into());
    let starts = rows.iter().map(|(_, one)| (one.start_ns as f64 - begin_ns as f64) / 1e9);
    let lengths = rows.iter().map(|(_, one)| one.duration_ns as f64 / 1e6);

    write_column::<Int64Type, W>(&mut group, threads.collect(), None)?;
    write_column::<Int64Type, W>(&mut group, numbers.into_iter().flatten().collect(), Some(&is_known))?;
    write_column::<ByteArrayType, W>(&mut group, kinds.collect(), None)?;
    write_column::<DoubleType, W>(&mut group, starts.collect(), None)?;
    write_column::<DoubleType, W>(&mut group, lengths.collect(), None)?;
    group.close().map(drop)
}

/// Writes the next column. `is_known`: 1 for each row that has a value, else 0; None if all have one.
fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: Vec<T::T>,
    is_known: Option<&[i16]>,
) -> std::result::Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("no column is left".into()))?;
    column.typed::<T>().write_batch(&values, is_known, None)?;
    column.close()
}

/// Returns what the clock showed at a time of CLOCK_MONOTONIC.
fn unix_s(ns: u64) -> f64 {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    now_s - (clock::now() as f64 - ns as f64) / 1e9
}

/// Returns the kind of an interval. `off` is worth a replay: a wait that is longer than an interrupt's.
fn kind(state: State, length_ns: u64) -> &'static str {
    match state {
        State::Waiting if length_ns >= NOISE_NS => "off",
        State::Waiting => "noise",
        state => state.name(),
    }
}

/// Returns begin and length (ns) of every off-time, in order, without overlap; they count from the start of the run.
///
/// `recording` is FILE or FILE#THREAD, CSV or Parquet with columns start_s and duration_ms; where there is a column kind,
/// its rows that are not `off` are left out.
pub fn offtimes(recording: &str) -> Result<Vec<(u64, u64)>> {
    let refuse = |what: &str| Err(Refusal::bad_input(format!("replay: {recording} {what}")));
    let is_there = Path::new(recording).is_file() || Path::new(recording).is_dir();
    // The last one: names may have some, too.
    let (name, part) = recording.rsplit_once('#').filter(|_| !is_there).unwrap_or((recording, ""));
    let path = Path::new(name);
    if path.is_dir() {
        return refuse("is a directory; `brobust run --replay` takes datasets");
    }
    let mut times: Vec<(f64, f64)> = of_file(path, part)?.into_iter().filter_map(|row| row.times).collect();
    // This refuses what is not a number, too: it is in no interval.
    if !times.iter().all(|(start, duration)| start.abs() <= MAX_TIME_S && duration.abs() <= MAX_TIME_S) {
        return refuse("holds a time that is no number, or of more than 1e+08 s");
    }
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut offtimes = Vec::new();
    for (start_s, duration_ms) in times {
        let (start, end) = ((start_s * 1e9).round(), (start_s * 1e9 + duration_ms * 1e6).round());
        // Off-times before the run's start are over when it begins.
        let start = start.max(0.0);
        if end > start {
            offtimes.push((start as u64, (end - start) as u64));
        }
    }
    if offtimes.is_empty() {
        return refuse("holds no off-time with a known start; nothing could be replayed");
    }
    if let Some(pair) = offtimes.windows(2).find(|pair| pair[1].0 < pair[0].0 + pair[0].1) {
        let seconds = |ns: u64| general(ns as f64 / 1e9, 6);
        return refuse(&format!(
            "has off-times that overlap, at {} s and {} s; give the recording of one thread",
            seconds(pair[0].0),
            seconds(pair[1].0)
        ));
    }
    Ok(offtimes)
}

fn of_file(file: &Path, thread: &str) -> Result<Vec<Row>> {
    let Table { columns, mut rows } = read(file)?;
    let name = file.display();
    let has = |column: &str| columns.iter().any(|known| known == column);
    if has("thread") {
        let (named, mut seen) = (rows.iter().filter_map(|row| row.thread.as_deref()), HashSet::new());
        let threads: Vec<&str> = named.filter(|thread| seen.insert(*thread)).collect();
        let thread = match &threads[..] {
            [only] if thread.is_empty() => *only,
            _ => thread,
        };
        if !threads.contains(&thread) {
            let named = match thread {
                "" => format!("{} threads", threads.len()),
                thread => format!("no thread {thread}"),
            };
            let known = threads[..threads.len().min(5)].join(", ");
            return Err(Refusal::bad_input(format!(
                "replay: {name} holds {named}; give {name}#THREAD with one of: {known}"
            )));
        }
        let thread = thread.to_owned();
        rows.retain(|row| row.thread.as_deref() == Some(&*thread));
    }
    if has("kind") {
        rows.retain(|row| row.is_off);
    }
    Ok(rows)
}

/// A table, and of each row what a replay needs.
struct Table {
    columns: Vec<String>,
    rows: Vec<Row>,
}

const NEEDED: [&str; 4] = ["start_s", "duration_ms", "kind", "thread"];

struct Row {
    thread: Option<Rc<str>>,
    is_off: bool,
    /// Start, s, and length, ms; NaN: it is no number. None: one of them is not there.
    times: Option<(f64, f64)>,
}

impl Row {
    /// Makes a row of the text of these columns; None where there is none. `threads`: the names of those that are known.
    fn of(threads: &mut HashSet<Rc<str>>, mut cell: impl FnMut(&str) -> Option<String>) -> Read<Self> {
        let mut number = |column: &str| cell(column).map(|text| text.trim().parse().unwrap_or(f64::NAN));
        let times = number("start_s").zip(number("duration_ms"));
        let thread = cell("thread").map(|name| threads.get(&*name).cloned().unwrap_or_else(|| name.into()));
        threads.extend(thread.clone());
        if threads.len() > MAX_THREADS {
            return Err(because(&format!("of more than {MAX_THREADS} threads")));
        }
        Ok(Self { thread, is_off: cell("kind").is_some_and(|kind| kind == "off"), times })
    }
}

fn read(file: &Path) -> Result<Table> {
    let refuse = |rest: String| Refusal::bad_input(format!("replay: {}{rest}", file.display()));
    let not_opened = |why: String| refuse(format!(": {why}"));
    if file.extension().is_some_and(|extension| extension == "parquet") {
        // A file that was changed by hand may break what the reader relies on: it then panics.
        let opened = files::open(file, MAX_RECORDING).map_err(not_opened)?;
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| ()));
        let read = panic::catch_unwind(AssertUnwindSafe(|| read_parquet(opened)));
        panic::set_hook(hook);
        return read.unwrap_or_else(|_| Err(because("damaged"))).map_err(refuse);
    }
    let content = files::read(file, MAX_RECORDING).map_err(not_opened)?;
    read_csv(&content, MAX_ROWS).map_err(refuse)
}

/// A table, or the end of a sentence about its file, which is not read.
type Read<T> = std::result::Result<T, String>;

fn because(why: &str) -> String {
    format!(": cannot be read ({why})")
}

fn broken(error: ParquetError) -> String {
    let text = error.to_string();
    because(match text.contains("Disabled feature") || text.contains("codec") {
        true => "compressed by neither zstd nor snappy",
        false => "damaged, or no parquet",
    })
}

fn too_long(max_rows: usize) -> String {
    because(&format!("of more than {max_rows} rows"))
}

/// Refuses a table without the columns that a replay needs, before any of its rows may be refused for another reason.
fn refuse_lacking(columns: &[String]) -> Read<()> {
    let has = |column: &&str| columns.iter().any(|known| known == column);
    let lacking: Vec<&str> = ["duration_ms", "start_s"].into_iter().filter(|column| !has(column)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(format!(" has no column {}; give start_s and duration_ms", lacking.join(" and ")))
}

fn read_parquet(file: File) -> Read<Table> {
    let reader = SerializedFileReader::new(file).map_err(broken)?;
    let about = reader.metadata().file_metadata();
    if about.num_rows() > MAX_ROWS as i64 {
        return Err(too_long(MAX_ROWS));
    }
    let schema = about.schema();
    let columns: Vec<String> = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
    refuse_lacking(&columns)?;
    let needed = schema.get_fields().iter().filter(|field| NEEDED.contains(&field.name()));
    let projection =
        Type::group_type_builder(schema.name()).with_fields(needed.cloned().collect()).build().map_err(broken)?;
    let (mut rows, mut threads) = (Vec::new(), HashSet::new());
    for found in reader.get_row_iter(Some(projection)).map_err(broken)? {
        let found = found.map_err(broken)?;
        let is_long = |field: &Field| match field {
            Field::Str(text) => text.len() > MAX_CELL,
            Field::Bytes(bytes) => bytes.len() > MAX_CELL,
            Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => true,
            _ => false,
        };
        if let Some((column, _)) = found.get_column_iter().find(|(_, field)| is_long(field)) {
            return Err(because(&format!("{column} has more than a number or a word")));
        }
        let text = |field: &Field| match field {
            Field::Null => None,
            Field::Str(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        rows.push(Row::of(&mut threads, |name| text(found.get_column_iter().find(|(column, _)| *column == name)?.1))?);
        if rows.len() > MAX_ROWS {
            return Err(too_long(MAX_ROWS)); // what the file says of itself need not be true
        }
    }
    Ok(Table { columns, rows })
}

/// Refuses a line that has more fields than the first, which names the columns, and more lines than that.
fn read_csv(content: &[u8], max_rows: usize) -> Read<Table> {
    // The only fault that a reader finds which takes lines of any number of fields.
    let no_text = |_: csv::Error| because("no CSV, since it is no UTF-8, and not called .parquet");
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(content);
    let columns: Vec<String> = reader.headers().map_err(no_text)?.iter().map(str::to_owned).collect();
    refuse_lacking(&columns)?;
    let (mut rows, mut threads) = (Vec::new(), HashSet::new());
    for line in reader.records() {
        let line = line.map_err(no_text)?;
        let (fields, known) = (line.len(), columns.len());
        if fields > known {
            let number = line.position().map_or(0, csv::Position::line);
            return Err(because(&format!("line {number} has {fields} fields, and the first names {known} columns")));
        }
        if rows.len() == max_rows {
            return Err(too_long(max_rows));
        }
        let place = |name: &str| columns.iter().position(|column| column == name);
        rows.push(Row::of(&mut threads, |name| {
            line.get(place(name)?).filter(|text| !text.is_empty()).map(str::to_owned)
        })?);
    }
    Ok(Table { columns, rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use brobust_host::Owner;
    use std::fs;
    use std::os::unix::fs::symlink;

    const MS: u64 = 1_000_000;

    fn vcpu(tid: i32, number: Option<u32>) -> Vcpu {
        Vcpu { thread: Owner::of(tid), name: "CPU 0/KVM".into(), number }
    }

    fn recording(tid: i32, off_ms: u64) -> Recording {
        let states = [(0, 10, State::Running), (10, off_ms, State::Waiting), (10 + off_ms, 5, State::Asleep)];
        let interval =
            |(start, length, state)| Interval { start_ns: (100 + start) * MS, duration_ns: length * MS, state };
        let intervals = states.map(interval).to_vec();
        Recording { tid, start_ns: 100 * MS, end_ns: (115 + off_ms) * MS, intervals, lost: 0 }
    }

    #[test]
    fn what_was_written_can_be_replayed() {
        let scratch = tempfile::tempdir().expect("made");
        let file = scratch.path().join("trace.parquet");
        let vcpus = [vcpu(7, Some(0)), vcpu(8, None)];
        write(&file, &[recording(7, 30), recording(8, 20)], &vcpus, 100 * MS).expect("written");
        let name = file.display();
        assert_eq!(offtimes(&format!("{name}#7")), Ok(vec![(10 * MS, 30 * MS)]));
        assert_eq!(offtimes(&format!("{name}#8")), Ok(vec![(10 * MS, 20 * MS)]));
        let refused = |recording: &str| offtimes(recording).unwrap_err().text;
        assert!(refused(&name.to_string()).contains("holds 2 threads; give"), "{}", refused(&name.to_string()));
        assert!(refused(&format!("{name}#9")).contains("holds no thread 9"));
        let content = fs::read(&file).expect("it is there");
        fs::write(&file, &content[..content.len() / 2]).expect("written");
        assert!(refused(&name.to_string()).ends_with("cannot be read (damaged, or no parquet)"));
    }

    #[test]
    fn a_word_without_end_is_not_read_into_every_row() {
        let scratch = tempfile::tempdir().expect("made");
        let file = scratch.path().join("long.parquet");
        let columns = "message recording { required binary thread (STRING); required double start_s; \
                       required double duration_ms; }";
        let schema = Arc::new(parse_message_type(columns).expect("a schema"));
        for (letters, is_read) in [(MAX_CELL, true), (MAX_CELL + 1, false)] {
            let out = File::create(&file).expect("made");
            let mut writer = SerializedFileWriter::new(out, Arc::clone(&schema), Arc::default()).expect("begun");
            let mut group = writer.next_row_group().expect("begun");
            let thread = "x".repeat(letters);
            write_column::<ByteArrayType, _>(&mut group, vec![thread.as_str().into()], None).expect("written");
            write_column::<DoubleType, _>(&mut group, vec![0.01], None).expect("written");
            write_column::<DoubleType, _>(&mut group, vec![30.0], None).expect("written");
            group.close().and_then(|_| writer.close()).expect("written");
            match offtimes(&file.display().to_string()) {
                Ok(read) => assert!(is_read && read == [(10 * MS, 30 * MS)]),
                Err(refused) => {
                    assert!(!is_read && refused.text.ends_with("(thread has more than a number or a word)"))
                }
            }
        }
    }

    #[test]
    fn what_threads_got_is_not_written_through_a_link() {
        // In a directory where others may put links, root would write where these point to.
        let scratch = tempfile::tempdir().expect("made");
        let (victim, out) = (scratch.path().join("victim"), scratch.path().join("trace.parquet"));
        fs::write(&victim, "theirs").expect("written");
        symlink(&victim, &out).expect("linked");
        let refused = write(&out, &[], &[], 0).unwrap_err().text;
        assert!(refused.contains("something other than a regular file"), "{refused}");
        fs::remove_file(&out).expect("removed");
        write(&out, &[], &[], 0).expect("written");
        assert!(offtimes(&out.display().to_string()).unwrap_err().text.contains("0 threads"));
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "theirs");
    }

    #[test]
    fn a_thread_is_named_after_the_last_hash_unless_a_file_has_the_whole_name() {
        for row in include_str!("../../../../tests/recording-names.csv").lines().skip(1) {
            let [there, given, start_s] = row.split(',').collect::<Vec<_>>()[..] else { panic!("{row}") };
            let scratch = tempfile::tempdir().expect("made");
            fs::write(scratch.path().join(there), "thread,start_s,duration_ms\n7,1,2\n8,2,2\n").expect("written");
            let read = offtimes(&scratch.path().join(given).display().to_string());
            match start_s.parse::<u64>() {
                Ok(start_s) => assert_eq!(read, Ok(vec![(start_s * 1000 * MS, 2 * MS)]), "{row}"),
                Err(_) => assert!(read.unwrap_err().text.contains(start_s), "{row}"),
            }
        }
    }

    #[test]
    fn threads_cost_a_small_file_no_more_than_they_cost_us() {
        let read = read_csv(b"thread,start_s,duration_ms\na,1,1\na,2,1\n", 2).unwrap_or_else(|why| panic!("{why}"));
        let [Some(one), Some(other)] = [0, 1].map(|row| read.rows[row].thread.clone()) else { panic!("of thread a") };
        assert!(Rc::ptr_eq(&one, &other), "each row has the name for itself");
        let names: String = (0..=MAX_THREADS).map(|thread| format!("{thread},1,1\n")).collect();
        let refused = read_csv(format!("thread,start_s,duration_ms\n{names}").as_bytes(), MAX_ROWS).err();
        assert_eq!(refused.as_deref(), Some(": cannot be read (of more than 10000 threads)"));
    }

    #[test]
    fn a_table_of_the_users_own_is_read_or_refused() {
        let scratch = tempfile::tempdir().expect("made");
        let file = scratch.path().join("own.csv");
        let of = |text: &str| {
            fs::write(&file, text).expect("written");
            offtimes(&file.display().to_string())
        };
        let refused = |text: &str| of(text).unwrap_err().text;
        let good = "kind,start_s,\"duration_ms\"\r\noff,0.5,10\r\nnoise,0.4,1\noff,-0.1,150\noff,,3\n\n";
        assert_eq!(of(good), Ok(vec![(0, 50 * MS), (500 * MS, 10 * MS)]));
        assert!(read_csv(b"start_s,duration_ms\n1,1\n2,1\n", 2).is_ok());
        assert!(refused("start_s,length\n1,2\n").contains("has no column duration_ms"));
        let page = refused("# Brobust\n\nHello, you, and you\n");
        assert!(page.ends_with("has no column duration_ms and start_s; give start_s and duration_ms"), "{page}");
        let wide = refused("start_s,duration_ms\n1,1\n2,3,4\n");
        assert!(wide.ends_with("cannot be read (line 3 has 3 fields, and the first names 2 columns)"), "{wide}");
        let long = read_csv(b"start_s,duration_ms\n1,1\n2,1\n3,1\n", 2).err();
        assert_eq!(long.as_deref(), Some(": cannot be read (of more than 2 rows)"));
        fs::write(&file, b"start_s,duration_ms\n1,\xff\n").expect("written");
        let bytes = offtimes(&file.display().to_string()).unwrap_err().text;
        assert!(bytes.contains("no CSV, since it is no UTF-8"), "{bytes}");
        for time in ["soon", "nan"] {
            assert!(refused(&format!("start_s,duration_ms\n1,{time}\n")).contains("a time that is no number"));
        }
        assert!(refused("start_s,duration_ms\n1,0\n").contains("holds no off-time"));
        assert!(refused("start_s,duration_ms\n1,2000\n2,10\n").contains("overlap, at 1 s and 2 s"));
        assert!(offtimes("no-such.csv").unwrap_err().text.contains("no-such.csv: cannot be read (no such file"));
        let directory = offtimes(&scratch.path().display().to_string()).unwrap_err().text;
        assert!(directory.contains("is a directory"));
    }
}
