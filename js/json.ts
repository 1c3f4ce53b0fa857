/** varve/json: values of schemas as JSON, from the bytes to the text and back. */

export { MalformedValueError } from "./errors/index.js";
export { inJson, type JsonForm } from "./struct/json/in-json.js";
export {
  fromJson,
  type HasJson,
  type JsonOptions,
  jsonReader,
  jsonWriter,
  toJson,
} from "./struct/json/index.js";
