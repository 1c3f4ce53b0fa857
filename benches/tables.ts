/** The tables of docs/benchmarks.md, made from a run. */

import { figure, type Results, type Row, type Section, sideBySide } from "./report.js";

type Cells = readonly string[];

function table(head: Cells, alignment: Cells, lines: readonly Cells[]): string {
  return [head, alignment, ...lines].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function shown(row: Row | undefined): string {
  return row === undefined ? "" : figure(row.figures.median);
}

function find(section: Section, work: string, store: string): Row | undefined {
  return section.rows.find((row) => row.work.startsWith(work) && row.store === store);
}

/** The product drop: a name for each line, and the row with its figure. */
const DROPS: readonly {
  title: string;
  section: string;
  work: RegExp;
  lines: readonly [name: string, store: string][];
}[] = [
  {
    title: "Node, a file; one write per turn",
    section: "node",
    work: /^drop .*one write per turn/,
    lines: [["varve", "varve"]],
  },
  {
    title: "Node, a file; each update its own write",
    section: "node",
    work: /^drop .*a write per update/,
    lines: [
      ["varve", "varve"],
      ["GrausDB, native (it has no grouping)", "GrausDB"],
    ],
  },
  {
    title: "Chromium, OPFS; one commit for all",
    section: "browser",
    work: /^drop .*one commit for all/,
    lines: [
      ["varve", "varve"],
      ["sqlite-wasm, prepared statements", "SQLite, prepared statements"],
      ["sqlite-wasm, its C calls on a key bound once", "SQLite, raw calls"],
      ["IndexedDB, one transaction", "IndexedDB"],
    ],
  },
  {
    title: "Chromium, OPFS; a commit for each",
    section: "browser",
    work: /^drop .*a commit for each/,
    lines: [
      ["varve", "varve"],
      ["sqlite-wasm, prepared statements", "SQLite, prepared statements"],
      ["IndexedDB, a transaction each", "IndexedDB"],
    ],
  },
];

function drops(sections: ReadonlyMap<string, Section>): string[] {
  const lines: Cells[] = [];
  for (const { title, section, work, lines: wanted } of DROPS) {
    const rows = sections.get(section)?.rows.filter((row) => work.test(row.work)) ?? [];
    const ours = rows.find(({ store }) => store === "varve");
    if (ours === undefined) continue;
    lines.push([`**${title}**`, "", ""]);
    for (const [name, store] of wanted) {
      const row = rows.find((one) => one.store === store);
      if (row === undefined) continue;
      const times = row === ours ? "" : `${figure(row.figures.median / ours.figures.median)} times`;
      lines.push([name, `${shown(row)} ms`, times]);
    }
  }
  if (lines.length === 0) return [];
  const head = "20,000 times: read a record, look at its fields, decrement it if there is stock";
  return [table([head, "", "against varve"], ["---", "--:", "--:"], lines)];
}

function calls(section: Section | undefined): string[] {
  if (section === undefined) return [];
  const line = (name: string, work: string, store: string): Cells => {
    const [one, many] = [
      find(section, `${work}, one key`, store),
      find(section, `${work}, 64`, store),
    ];
    return [name, shown(one) && `${shown(one)} ns`, shown(many) && `${shown(many)} ns`];
  };
  const get = "get of 64 bytes by string";
  return [
    table(
      [
        "a single call in Chromium, 64-byte value, 16-character key",
        "the same key again",
        "64 keys in turn",
      ],
      ["---", "--:", "--:"],
      [
        line("`Map.get` and `new Uint8Array`", get, "Map and new Uint8Array"),
        line("`get`, view included (goal: 70)", get, "varve"),
        line("`updateIf` (goal: 90)", "updateIf", "varve"),
        line(
          "`set` over an existing key, write included",
          "set of 64 bytes over an existing key",
          "varve",
        ),
      ],
    ),
  ];
}

/** A selection of the kinds of work; the record has the rest. */
const WORKS = [
  "get, sequential",
  "get, random",
  "get, zipfian",
  "set existing, random",
  "set existing, zipfian",
  "set existing, each by itself, random",
  "set existing, all flushed once a second, random",
  "set existing, each group flushed, random",
  "update, random",
  "set new, sequential",
  "set new, random",
  "delete, random",
  "getMany of 100, random",
  "get after all writes, random",
  "scan, sequential",
  "scan after all writes, sequential",
  "close and reopen",
];

function sizes(section: Section | undefined): string[] {
  if (section === undefined) return [];
  const groups = sideBySide(section.rows);
  const stores = [...new Set(groups.flatMap((group) => group.stores))];
  const lines: Cells[] = [];
  for (const { group, stores: present, works } of groups) {
    lines.push([`**${group}**`, ...stores.map(() => "")]);
    for (const { work, cells } of works) {
      if (!WORKS.includes(work)) continue;
      const unit = work === "close and reopen" ? " ms" : "";
      lines.push([
        work,
        ...stores.map((store) => {
          const row = cells[present.indexOf(store)];
          return row === undefined ? "" : `${shown(row)}${unit}`;
        }),
      ]);
    }
  }
  const head = `${section.title}; ns an operation`;
  return [table([head, ...stores], ["---", ...stores.map(() => "--:")], lines)];
}

function large(sections: readonly (Section | undefined)[]): string[] {
  const [node, browser] = sections;
  const rows = node?.rows ?? browser?.rows;
  if (rows === undefined) return [];
  const lines = rows.map(({ work, store, unit }): Cells => {
    const cells = sections.map((section) => {
      const row = section?.rows.find((one) => one.work === work && one.store === store);
      return row === undefined ? "" : `${shown(row)} ${unit}`;
    });
    return [work, store, ...cells];
  });
  const head = ["more than memory, and large values", "", "Node", "Chromium"];
  return [table(head, ["---", "---", "--:", "--:"], lines)];
}

/** A selection of the rows about tabs. */
const TABS: readonly (readonly [name: string, group: string, work: string])[] = [
  ["a read from the page", "a round trip of the tab that has the file, alone", "read"],
  ["a write from the page", "a round trip of the tab that has the file, alone", "write"],
  ["one of 1,000 reads at once", "a round trip of the tab that has the file, pipelined", "read"],
  ["one of 1,000 writes at once", "a round trip of the tab that has the file, pipelined", "write"],
  ["writes of 8 tabs, 64 at once in each", "writes per second", "8 tabs, 64 at once"],
  ["unanswered while the owner closes", "longest time unanswered", "the owner's tab is closed"],
  ["unanswered while it is killed", "longest time unanswered", "the owner's tab is killed"],
  ["the first visit, until it has written", "the first visit", "until it has written and read"],
  ["downloaded for it", "the first visit", "downloaded"],
];

function tabs(section: Section | undefined): string[] {
  if (section === undefined) return [];
  const columns = [
    ["Chromium", "varve"],
    ["Chromium", "bare echo"],
    ["Chromium", "IndexedDB"],
    ["Chromium", "PGlite"],
    ["Firefox", "varve"],
  ] as const;
  const lines = TABS.map(([name, group, work]): Cells => {
    const cells = columns.map(([browser, store]) => {
      const row = section.rows.find(
        (one) =>
          one.group === `${browser}: ${group}` && one.work.startsWith(work) && one.store === store,
      );
      return row === undefined ? "" : `${shown(row)} ${row.unit}`;
    });
    return [name, ...cells];
  });
  const head = ["pages and tabs", ...columns.map(([browser, store]) => `${store}, ${browser}`)];
  return [table(head, ["---", ...columns.map(() => "--:")], lines)];
}

/** How long a page waits for its first answers. */
function starts(section: Section | undefined): string[] {
  if (section === undefined) return [];
  const stores = ["varve", "floor", "Dexie", "idb-keyval"];
  const lines = ["Chromium", "Firefox"].flatMap((browser): Cells[] => {
    const rows = section.rows.filter(
      ({ group }) => group === `${browser}: from the end of the page's imports`,
    );
    return [...new Set(rows.map(({ work }) => work))].map((work) => {
      const cells = stores.map((store) => {
        const found = rows.find((one) => one.work === work && one.store === store);
        return found === undefined ? "" : `${shown(found)} ms`;
      });
      return [`${browser}, ${work}`, ...cells];
    });
  });
  const head = ["a page's start, from the end of its imports", ...stores];
  return [table(head, ["---", ...stores.map(() => "--:")], lines)];
}

/** Lists on a page, a record. */
function lists(section: Section | undefined): string[] {
  if (section === undefined) return [];
  const columns = [
    ["varve, json()", "all()"],
    ["varve, json()", "for await"],
    ["varve, views", "all()"],
    ["varve, views", "for await"],
    ["varve, schema", "all()"],
    ["Dexie", "toArray"],
    ["floor", "objects"],
  ] as const;
  const groups = [...new Set(section.rows.map(({ group = "" }) => group))];
  const lines = groups.map((group): Cells => {
    const cells = columns.map(([store, work]) => {
      const row = section.rows.find(
        (one) => one.group === group && one.store === store && one.work === work,
      );
      return row === undefined ? "" : `${shown(row)} ${row.unit}`;
    });
    return [group.replace(/^[^:]*: /, ""), ...cells];
  });
  const head = ["lists on a page in Chromium", ...columns.map((names) => names.join(", "))];
  return [table(head, ["---", ...columns.map(() => "--:")], lines)];
}

/** Walks over the log, and what they take of the time of `sum`. */
function history(section: Section | undefined): string[] {
  if (section === undefined) return [];
  const goalsOf = new Map(section.goals.map(({ what, measured }) => [what, measured]));
  const lines = section.rows.map(({ work, store, unit, figures }): Cells => {
    const ratio = goalsOf.get(`${store}, ${work}, against sum`);
    const noted = goalsOf.get(`a commit ${work}, ${store}`);
    const { median, lowerQuartile: from, upperQuartile: to } = figures;
    const spread = `${figure(from)} to ${figure(to)}`;
    return [store, work, `${figure(median)} ${unit}`, spread, ratio ?? noted ?? ""];
  });
  const head = ["the log as history", "", "", "middle half", "against sum, or without"];
  return [table(head, ["---", "---", "--:", "--:", "--:"], lines)];
}

/** A selection of the rows about typed views, with raw bytes and JSON for comparison. */
const VIEWS: readonly (readonly [group: string, work: string, lines: readonly string[]])[] = [
  ["a record", "read a number of a view that is kept", ["raw DataView", "varve", "object"]],
  ["a record", "make a view and read a number of it", ["varve", "FlatBuffers", "msgpackr", "JSON"]],
  ["a record", "read a string of 18", ["raw DataView", "varve", "FlatBuffers"]],
  ["a row", "insert 100 rows in order", ["raw bytes", "typed view", "JSON"]],
  ["a row", "a cursor over 50 rows", ["raw bytes", "typed view", "JSON"]],
  ["a row", "find a row among 50", ["raw bytes", "typed view", "JSON"]],
  ["a row", "updateIf with a predicate, keys are strings", ["raw bytes", "typed view"]],
];

function views(section: Section | undefined): string[] {
  if (section === undefined) return [];
  const lines = VIEWS.flatMap(([about, work, stores]) =>
    stores.map((store, index): Cells => {
      const cells = ["Node", "Chromium"].map((platform) => {
        const found = section.rows.find(
          (row) =>
            row.group?.startsWith(`${platform}: ${about}`) &&
            row.work.startsWith(work) &&
            row.store === store,
        );
        return found === undefined ? "" : `${shown(found)} ns`;
      });
      const title = section.rows.find((row) => row.work.startsWith(work))?.work ?? work;
      return [index === 0 ? title : "", store, ...cells];
    }),
  );
  const head = ["typed views of records", "", "Node", "Chromium"];
  return [table(head, ["---", "---", "--:", "--:"], lines)];
}

/** What the goals of a section are about, where its name does not say it. */
const WHERE: Record<string, string> = {
  client: "tabs",
  history: "history",
  lists: "lists",
  page: "start",
};

function goals(sections: readonly Section[]): string[] {
  const lines = sections.flatMap(({ id, goals: all }) =>
    all.map(({ what, wanted, measured, reached }): Cells => {
      const where = WHERE[id ?? ""] ?? (id?.endsWith("browser") ? "Chromium" : "Node");
      return [where, what, wanted, measured, reached ? "yes" : "**no**"];
    }),
  );
  if (lines.length === 0) return [];
  return [
    table(["", "goal", "", "measured", "reached"], ["---", "---", "---", "---", "---"], lines),
  ];
}

export function tables(results: Results): string {
  const { machine, date, commit } = results;
  const sections = new Map(results.sections.map((section) => [section.id ?? "", section]));
  const day = new Date(date).toLocaleDateString("en-GB", {
    day: "numeric",
    month: "long",
    year: "numeric",
  });
  return [
    `Of one run on ${machine.cpu}, ${machine.cores} cores, ${machine.platform}, Node ${machine.node.slice(1)}, ${day}, commit ${commit}; load ${machine.load?.toFixed(1)} when it began. Medians.`,
    ...drops(sections),
    ...calls(sections.get("browser")),
    ...sizes(sections.get("sizes")),
    ...sizes(sections.get("sizes-browser")),
    ...large([sections.get("large"), sections.get("large-browser")]),
    ...tabs(sections.get("client")),
    ...starts(sections.get("page")),
    ...lists(sections.get("lists")),
    ...history(sections.get("history")),
    ...views(sections.get("struct")),
    ...goals(results.sections),
  ].join("\n\n");
}
