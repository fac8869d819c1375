//! Writing a group: a sheet of its own, and, where there is no room for that, what is still needed of the oldest ones.

use tidegate_core::GenerationId;

use super::bundle::{self, Bundle};
use super::draft::Draft;
use super::group::{self, Group, OpenRow, SettledRow};
use super::recent::Fresh;
use super::ring::{self, Head, Lines};
use super::sheets::{Settled, Sheet};
use super::{DEAD, Entry, Home, Journal, Letter, MOST, Payload, Place, Result};

/// A letter on a sheet, about.
const LETTER: usize = 64;

/// The row that settled calls of a sheet have moved to.
#[derive(Debug)]
pub(super) struct Moved {
    row: i64,
    /// By their lines on the sheet; the main store has the others.
    lines: Vec<Option<u32>>,
    of: u32,
}

impl Moved {
    pub fn place(&self, line: u32) -> Option<Place> {
        let line = (*self.lines.get(line as usize)?)?;
        Some(Place { row: self.row, line, of: self.of, is_on_sheet: false })
    }
}

/// What is to be written, and what is so when it is.
#[derive(Default)]
struct Plan<'a> {
    group: Group<'a>,
    sheet: Sheet,
    /// So many of the oldest sheets go.
    going: usize,
    /// Open calls that get rows.
    opened: Vec<(GenerationId, i64)>,
    /// Settled ones that do, by their sheets.
    moved: Vec<(i64, Moved)>,
    over: Vec<GenerationId>,
    /// Where the calls stand that are settled, in the order of their settlings.
    places: Vec<Place>,
    /// Letters, with their rows and destinations.
    letters: Vec<(i64, String, Option<Fresh>)>,
}

impl Journal {
    /// Writes a group in one transaction. Says where the calls that it settles stand, in their order.
    /// `full_sync` brings this group, and all before it, to the disk.
    pub async fn write(&mut self, entries: &[Entry<'_>], full_sync: bool) -> Result<Vec<Place>> {
        self.write_with(entries, &[], full_sync).await
    }

    /// The same, with what destinations are to be told of it.
    pub async fn write_with(
        &mut self,
        entries: &[Entry<'_>],
        letters: &[Letter],
        full_sync: bool,
    ) -> Result<Vec<Place>> {
        self.sync(full_sync).await?;
        let plan = self.plan(entries, letters, false);
        let written = self.carry_out(plan).await;
        if written.is_err() {
            // Nobody knows how much of it is there.
            letters.iter().for_each(|letter| self.doubt(&letter.destination));
        }
        if !self.doubted.is_empty()
            && written.is_ok()
            && let Err(error) = self.move_letters(false).await
        {
            // What calls cost does not wait for that; the next group tries it again.
            tracing::debug!(%error, "letters could not be given rows");
        }
        written
    }

    /// Brings everything that was written to the disk, with a commit that waits for it.
    pub async fn flush(&mut self) -> Result<()> {
        self.sync(true).await?;
        let mut plan = self.plan(&[], &[], false);
        // The log is synced with a commit, and a commit needs a change: its number makes every sheet another.
        if plan.sheet.text.is_empty() {
            plan.sheet.text.push_str(ring::NOTHING);
        }
        self.carry_out(plan).await.map(drop)
    }

    /// Writes down what was only noted so far: what the main store has, what was delivered.
    pub(super) async fn say_news(&mut self) -> Result<()> {
        if !self.sheets.has_news() {
            return Ok(());
        }
        self.sync(false).await?;
        let plan = self.plan(&[], &[], false);
        self.carry_out(plan).await.map(drop)
    }

    /// Gives everything that stands on sheets a row.
    pub(super) async fn move_all(&mut self) -> Result<()> {
        let plan = self.plan(&[], &[], true);
        self.carry_out(plan).await.map(drop)
    }

    /// Gives letters that stand on sheets rows, where others look for them: those of destinations in doubt, or all.
    pub(super) async fn move_letters(&mut self, all: bool) -> Result<()> {
        let bundles = self.sheets.bundles((!all).then_some(&self.doubted));
        if !bundles.is_empty() {
            let said = self.sheets.gone.len();
            let rows: Vec<i64> = bundles.iter().map(|bundle| bundle.id).collect();
            self.sheets.gone.extend(&rows);
            let mut plan = self.plan(&[], &[], false);
            // Sheets that go may have given rows to some of them.
            plan.group.bundles.retain(|bundle| !rows.contains(&bundle.id));
            plan.group.bundles.extend(bundles);
            if let Err(error) = self.carry_out(plan).await {
                self.sheets.gone.truncate(said);
                return Err(error);
            }
            for row in &rows {
                self.sheets.posted.remove(row);
            }
        }
        self.doubted.clear();
        Ok(())
    }

    /// Something may wait for a destination that is not remembered.
    pub(super) fn doubt(&mut self, destination: &str) {
        self.recent.miss(destination);
        self.doubted.insert(destination.to_owned());
    }

    async fn carry_out(&mut self, plan: Plan<'_>) -> Result<Vec<Place>> {
        let Plan { group, sheet, going, opened, moved, over, places, letters } = plan;
        // Numbers are never used twice, whatever becomes of this.
        self.next_open += group.opened.len() as i64;
        self.next_settled += group.settled.len() as i64;
        self.next_bundle += letters.len() as i64;
        let (number, is_tidying) = (self.sheets.next, group.buried.is_some());
        // Those that stood on sheets; the others come to be remembered below.
        let is_old = |bundle: &&Bundle| letters.iter().all(|(row, ..)| *row != bundle.id);
        let rows: Vec<(i64, String)> =
            group.bundles.iter().filter(is_old).map(|bundle| (bundle.id, bundle.destination.clone())).collect();
        let opens: Vec<GenerationId> = sheet.opens.iter().map(|(id, _)| *id).collect();
        self.write_sheet(group, sheet, going).await?;
        if is_tidying {
            self.dead.clear();
        }
        self.recent.have_rows(&rows);
        self.open.extend(opens.into_iter().map(|id| (id, Home::Ring(number))));
        self.open.extend(opened.into_iter().map(|(id, row)| (id, Home::Row(row))));
        self.moved_from.extend(moved.iter().map(|(sheet, moved)| (moved.row, *sheet)));
        self.moved.extend(moved);
        for id in over {
            if let Some(Home::Row(row)) = self.open.remove(&id) {
                self.dead.push(row);
            }
        }
        for (row, destination, fresh) in letters {
            match fresh {
                Some(fresh) => self.doubted.extend(self.recent.keep(&destination, row, fresh)),
                None => self.doubt(&destination),
            }
        }
        Ok(places)
    }

    pub(super) async fn write_sheet(&mut self, mut group: Group<'_>, sheet: Sheet, going: usize) -> Result<()> {
        let is_needed = !sheet.text.is_empty();
        let taken = if is_needed { self.sheets.slots_for(&sheet.text, going) } else { Vec::new() };
        if is_needed {
            let first = self.sheets.first_after(going);
            let head = Head { number: self.sheets.next, first, epoch: self.node.epoch };
            let images = self.sheets.shape.images(head, &sheet.text);
            group.slots = taken.iter().zip(images).map(|((slot, _), image)| (*slot, image)).collect();
        }
        let grown = group.bytes();
        group.write(&mut self.connection).await?;
        self.grown += grown;
        if is_needed {
            self.sheets.written(sheet, &taken, going);
        }
        Ok(())
    }

    /// `is_last`: nothing stays on a sheet.
    fn plan<'a>(&self, entries: &[Entry<'a>], letters: &[Letter], is_last: bool) -> Plan<'a> {
        let mut draft = Draft::of(entries, &self.open);
        let mut plan = Plan { over: draft.settles.iter().map(|(id, _)| *id).collect(), ..Plan::default() };
        let mut lines = Lines::with_capacity(draft.bytes() + LETTER * letters.len());
        let is_long = draft.bytes() > self.sheets.shape.longest();
        plan.group.amended = std::mem::take(&mut draft.amended);
        plan.group.marked = std::mem::take(&mut draft.marked);
        for (id, progress) in draft.risen.clone() {
            let data = draft.take_open(&id).map(Into::into).or_else(|| Some(self.words(&id)?.to_owned().into()));
            let Some(data) = data else { continue };
            let row = self.add_row(&mut plan, id, data);
            plan.group.marked.insert(row, progress);
            lines.away(&id);
        }
        if is_long {
            self.write_rows(&draft, &mut plan, &mut lines);
        } else {
            for (id, data) in draft.opens() {
                plan.sheet.opens.push((*id, lines.open(id, data)));
            }
            for (id, data) in &draft.settles {
                plan.sheet.settled.push(Settled { id: *id, place: lines.settle(id, data), is_forgotten: false });
            }
            let (row, of) = (self.sheets.next, draft.settles.len() as u32);
            let place = |place: &usize| Place { row, line: *place as u32, of, is_on_sheet: true };
            plan.places = draft.order.iter().map(place).collect();
        }
        self.post(&draft, (entries, letters), is_long, &mut plan, &mut lines);
        self.sheets.say_news(&mut lines);
        let may_end = self.dead.is_empty() || self.dead.len() >= DEAD;
        plan.going = match is_last {
            true => usize::MAX,
            false => self.sheets.make_room(self.sheets.shape.slots_of(&lines.0), &self.open, may_end),
        };
        self.move_oldest(&draft, &mut plan);
        if !self.dead.is_empty() && (plan.going > 0 || self.dead.len() >= DEAD) {
            plan.group.buried = Some(group::list(&self.dead));
        }
        if plan.going > 0 && lines.0.is_empty() {
            lines.0.push_str(ring::NOTHING);
        }
        plan.sheet.text = lines.0;
        plan
    }

    /// What a sheet says of an open call.
    fn words(&self, id: &GenerationId) -> Option<&str> {
        let Some(Home::Ring(number)) = self.open.get(id) else { return None };
        let sheet = self.sheets.get(*number)?;
        sheet.opens.iter().find(|(open, _)| open == id).map(|(_, place)| sheet.data(place))
    }

    fn add_row<'a>(&self, plan: &mut Plan<'a>, id: GenerationId, data: std::borrow::Cow<'a, str>) -> i64 {
        let row = self.next_open + plan.group.opened.len() as i64;
        plan.group.opened.push(OpenRow { row, id, epoch: self.node.epoch, data });
        plan.opened.push((id, row));
        row
    }

    /// A group that is too long for a sheet has rows.
    fn write_rows<'a>(&self, draft: &Draft<'_, 'a>, plan: &mut Plan<'a>, lines: &mut Lines) {
        let stands_on_sheet = |id: &GenerationId| matches!(self.open.get(id), Some(Home::Ring(_)));
        for (id, data) in draft.opens() {
            self.add_row(plan, *id, (*data).into());
            if stands_on_sheet(id) {
                lines.away(id);
            }
        }
        let mut places = Vec::with_capacity(draft.settles.len());
        for some in draft.settles.chunks(MOST) {
            let mut row = SettledRow::new(self.next_settled + plan.group.settled.len() as i64);
            for (id, data) in some {
                let line = row.add(id, data);
                places.push(Place { row: row.row, line, of: some.len() as u32, is_on_sheet: false });
                if stands_on_sheet(id) {
                    lines.away(id);
                }
            }
            plan.group.settled.push(row);
        }
        plan.places = draft.order.iter().map(|place| places[*place]).collect();
    }

    /// Letters: what can be made again of calls that are settled on the same sheet need not be said twice.
    fn post(
        &self,
        draft: &Draft<'_, '_>,
        (entries, letters): (&[Entry<'_>], &[Letter]),
        is_long: bool,
        plan: &mut Plan<'_>,
        lines: &mut Lines,
    ) {
        if letters.is_empty() {
            return;
        }
        let mut short = Vec::with_capacity(letters.len());
        let mut others = Vec::new();
        for letter in letters {
            let text = draft.settled(&letter.generation).filter(|_| !is_long);
            match (&letter.payload, &letter.told, text) {
                (Payload::Record(before), Some(told), Some(text)) if self.recent.is_whole(&letter.destination) => {
                    short.push((letter, *before, told, text.len()));
                }
                _ => others.push(letter),
            }
        }
        for (row, posted, fresh) in bundle::posted(short.into_iter(), self.next_bundle) {
            lines.letters(row, &posted);
            plan.letters.push((row, posted.destination.clone(), Some(fresh)));
            plan.sheet.letters.push((row, posted));
        }
        let first = self.next_bundle + plan.letters.len() as i64;
        for mut bundle in bundle::bundles(&bundle::written(&others, entries), first) {
            plan.letters.push((bundle.id, bundle.destination.clone(), bundle.fresh.take()));
            plan.group.bundles.push(bundle);
        }
    }

    /// What is still needed of sheets that go.
    fn move_oldest(&self, draft: &Draft<'_, '_>, plan: &mut Plan<'_>) {
        let oldest: Vec<(i64, &Sheet)> = self.sheets.oldest(plan.going).collect();
        plan.going = oldest.len();
        for (number, sheet) in oldest {
            for (id, place) in &sheet.opens {
                if self.open.get(id) == Some(&Home::Ring(number)) && !draft.is_about(id) {
                    self.add_row(plan, *id, sheet.data(place).to_owned().into());
                }
            }
            let mut row = SettledRow::new(self.next_settled + plan.group.settled.len() as i64);
            let mut add = |call: &Settled| (!call.is_forgotten).then(|| row.add(&call.id, sheet.data(&call.place)));
            let lines: Vec<Option<u32>> = sheet.settled.iter().map(&mut add).collect();
            if row.calls > 0 {
                plan.moved.push((number, Moved { row: row.row, lines, of: row.calls }));
                plan.group.settled.push(row);
            }
            for (row, letters) in &sheet.letters {
                if self.sheets.posted.contains_key(row) {
                    plan.group.bundles.push(sheet.bundle(*row, letters));
                }
            }
        }
    }
}
