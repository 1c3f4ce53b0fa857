import { type Summary, summarize } from "../demo/statistics.js";

/** One line of a table: one store at one kind of work. */
export interface Row {
  work: string;
  store: string;
  /** What is true of an operation once it is acknowledged; where nothing is stored, what it is. */
  durability: string;
  unit: "ms" | "ns" | "bytes";
  figures: Summary;
}

/** A figure that was promised, and whether it was reached. */
export interface Goal {
  what: string;
  wanted: string;
  measured: string;
  reached: boolean;
}

export interface Section {
  title: string;
  rows: Row[];
  goals: Goal[];
  /** What has to be known to read the table. */
  notes: string[];
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

/** A goal of the kind "at most" or "at least", with the measured figure rounded only for reading. */
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

/** Three digits: the machines that this runs on are not steadier than that. */
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

/** A section as Markdown. */
export function render({ title, rows, goals, notes }: Section): string {
  const parts = [`## ${title}`];
  parts.push(
    table(
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
    ),
  );
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
