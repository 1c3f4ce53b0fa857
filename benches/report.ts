import { type Summary, summarize } from "../demo/statistics.js";

/** One line of a table: one store and one kind of work. */
export interface Row {
  /** The table that the row belongs to, where a section has several. */
  group?: string;
  work: string;
  store: string;
  /** What an acknowledged operation survives; for work that stores nothing, a description. */
  durability: string;
  unit: "ms" | "µs" | "ns" | "bytes" | "MB/s" | "per s" | "times";
  figures: Summary;
}

/** A promised figure, and whether it was reached. */
export interface Goal {
  what: string;
  wanted: string;
  measured: string;
  reached: boolean;
}

export interface Section {
  /** The section's name on the command line. */
  id?: string;
  /** The system's load when the section started. */
  load?: number | undefined;
  title: string;
  /** A line for each row, or one for each kind of work with the stores side by side. */
  layout?: "lines" | "side by side";
  rows: Row[];
  goals: Goal[];
  /** Explanations of the table. */
  notes: string[];
}

/** A run, as stored in benches/results and benches/records. */
export interface Results {
  date: string;
  commit: string;
  machine: {
    cpu: string;
    cores: number;
    load: number | undefined;
    platform: string;
    node: string;
  };
  sections: Section[];
}

export function row(
  work: string,
  store: string,
  durability: string,
  unit: Row["unit"],
  samples: readonly number[],
): Row {
  return { work, store, durability, unit, figures: summarize(samples) };
}

/** A goal with an upper or lower bound; the measured figure is rounded for display only. */
export function goal(
  what: string,
  measured: number,
  bound: { atMost: number } | { atLeast: number },
  unit: string,
): Goal {
  const [word, limit, reached] =
    "atMost" in bound
      ? ["at most", bound.atMost, measured <= bound.atMost]
      : ["at least", bound.atLeast, measured >= bound.atLeast];
  return {
    what,
    wanted: `${word} ${limit.toLocaleString("en")} ${unit}`,
    measured: `${figure(measured)} ${unit}`,
    reached,
  };
}

/** Three digits: the machines' noise is larger than that. */
export function figure(value: number): string {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(3)).toString();
}

function table(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...lines.map((line) => line[column]?.length ?? 0)),
  );
  const draw = (line: readonly string[]) =>
    `| ${line.map((text, column) => text.padEnd(widths[column] ?? 0)).join(" | ")} |`;
  return [draw(head), draw(widths.map((width) => "-".repeat(width))), ...lines.map(draw)].join(
    "\n",
  );
}

function lines(rows: readonly Row[]): string {
  return table(
    ["work", "store", "durability", "median", "middle half", "min to max", "n"],
    rows.map(({ work, store, durability, unit, figures }) => [
      work,
      store,
      durability,
      `${figure(figures.median)} ${unit}`,
      `${figure(figures.lowerQuartile)} to ${figure(figures.upperQuartile)}`,
      `${figure(figures.min)} to ${figure(figures.max)}`,
      String(figures.samples.length),
    ]),
  );
}

/** The median, and half the interquartile range relative to it. */
function cell({ median, lowerQuartile, upperQuartile, samples }: Summary): string {
  if (samples.length < 3) return figure(median);
  const half = (upperQuartile - lowerQuartile) / 2;
  return `${figure(median)} ±${Math.round((100 * half) / median)}%`;
}

/** The cells of each group of rows, by work and store. */
export function sideBySide(
  rows: readonly Row[],
): { group: string; stores: string[]; works: { work: string; cells: (Row | undefined)[] }[] }[] {
  return [...new Set(rows.map(({ group = "" }) => group))].map((group) => {
    const members = rows.filter((one) => (one.group ?? "") === group);
    const stores = [...new Set(members.map(({ store }) => store))];
    const works = [...new Set(members.map(({ work }) => work))].map((work) => ({
      work,
      cells: stores.map((store) => members.find((one) => one.work === work && one.store === store)),
    }));
    return { group, stores, works };
  });
}

function tables(rows: readonly Row[]): string {
  return sideBySide(rows)
    .map(({ group, stores, works }) => {
      const body = works.map(({ work, cells }) => [
        `${work}, ${cells.find((one) => one)!.unit}`,
        ...cells.map((one) => (one === undefined ? "" : cell(one.figures))),
      ]);
      return `${group === "" ? "" : `### ${group}\n\n`}${table(["median", ...stores], body)}`;
    })
    .join("\n\n");
}

/** A section as Markdown. */
export function render({ title, layout, rows, goals, notes }: Section): string {
  const parts = [`## ${title}`];
  parts.push(layout === "side by side" ? tables(rows) : lines(rows));
  if (goals.length > 0) {
    parts.push(
      table(
        ["goal", "wanted", "measured", "reached"],
        goals.map(({ what, wanted, measured, reached }) => [
          what,
          wanted,
          measured,
          reached ? "yes" : "NO",
        ]),
      ),
    );
  }
  parts.push(notes.map((note) => `- ${note}`).join("\n"));
  return parts.join("\n\n");
}
