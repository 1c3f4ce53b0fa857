/** What every page of this benchmark does: one first call, as soon as its modules are loaded. */

/** A record of an ordinary list: about 130 bytes as JSON. */
export interface Note {
  readonly id: string;
  readonly title: string;
  readonly text: string;
  readonly done: boolean;
  readonly at: number;
}

/** A store in a page, opened by its first call. */
export interface Store {
  write(note: Note): Promise<unknown>;
  /** The first ten records in the order of their keys. */
  list(): Promise<readonly Note[]>;
}

/** What a page reports. Times are milliseconds since the navigation began. */
export interface Start {
  /** When the page's modules were loaded. */
  readonly imported: number;
  /** When the first call was answered. */
  readonly answered: number;
  /** What was listed, if the call lists. */
  readonly notes: readonly Note[] | undefined;
}

export const LIST = 10;

export function noteOf(index: number): Note {
  return {
    id: `note/${String(index).padStart(4, "0")}`,
    title: `Note ${index}`,
    text: "A line of text as one finds it in a list of notes.",
    done: index % 2 === 0,
    at: 1_764_000_000_000 + index,
  };
}

/** Makes the call that the page's URL asks for, and offers the others to the driver. */
export function offerStart(store: Store): void {
  const imported = performance.now();
  const first = async (): Promise<Start> => {
    const doing = new URLSearchParams(location.search).get("do");
    if (doing === "write") await store.write(noteOf(0));
    const notes = doing === "list" ? await store.list() : undefined;
    return { imported, answered: performance.now(), notes };
  };
  const tab = {
    first: first(),
    async fill(): Promise<readonly Note[]> {
      for (let index = 0; index < LIST; index += 1) await store.write(noteOf(index));
      return store.list();
    },
  };
  Object.assign(globalThis, { tab });
}
