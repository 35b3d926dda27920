// Preact with htm and signals: `html` makes what `render` shows. A component that reads a signal follows it.

import { h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render };
export { useEffect, useRef, useState, useMemo } from "../vendor/preact-hooks.js";
export { signal, computed } from "../vendor/signals.js";
