/** varve/json: values of schemas as JSON, from the bytes to the text and back. */

export { MalformedValueError } from "./errors/index.js";
export type { Spelling } from "./struct/json/form.js";
export {
  type FieldOptions,
  inJson,
  type StructForm,
  type TypeForm,
} from "./struct/json/in-json.js";
export {
  fromJson,
  type HasJson,
  type JsonOptions,
  jsonReader,
  jsonWriter,
  toJson,
} from "./struct/json/index.js";
