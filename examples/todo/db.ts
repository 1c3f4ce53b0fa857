// The worker's file: it owns the database. All tabs share one such worker.

import { type Database, serve } from "varve";
import { auto, bool, str, struct } from "varve/struct";

const Todo = struct("Todo", { done: bool, title: str });

export default serve("todo", {
  collections: { todos: { of: Todo, key: auto() } },
  procedures: {
    /** Deletes what is done, in one transaction and one round trip; gives how many that were. */
    clearDone(db: Database): number {
      const todos = db.collection("todos", Todo, { key: auto() });
      const done = [...todos.entries()].filter(([, todo]) => todo.done).map(([id]) => id);
      for (const id of done) todos.delete(id);
      return done.length;
    },
  },
});
