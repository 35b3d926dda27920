// Numbers, sizes, durations and times, as people read them.

export const count = (value) => Math.round(value).toLocaleString("en");

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; bytes >= 1024 && at < units.length - 1; at++) bytes /= 1024;
  return at ? `${bytes.toFixed(1)} ${units[at]}` : `${bytes} B`;
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export const time = (us) => (us ? new Date(us / 1000).toISOString().replace("T", " ").replace("Z", " UTC") : "–");

/** A payload of the API, as people read it: JSON is laid out, and bytes that are no text are hexadecimal digits. */
export function payload(given) {
  if (!given) return "(no payload)";
  if (given.base64 !== undefined) {
    const bytes = Uint8Array.from(atob(given.base64), (one) => one.charCodeAt(0));
    return Array.from(bytes.slice(0, 4096), (one) => one.toString(16).padStart(2, "0")).join(" ");
  }
  try {
    return /^[[{]/.test(given.text) ? JSON.stringify(JSON.parse(given.text), null, 2) : given.text;
  } catch {
    return given.text;
  }
}
