"""The examples of uProtocol's specification (its `basics/*.feature`), as data."""

from __future__ import annotations

URIS = [
    ("", 0x1, 0x1, 0xA1FB, "up:/1/1/A1FB"),
    ("192.168.1.1", 0x1, 0x1, 0xA1FB, "up://192.168.1.1/1/1/A1FB"),
    ("[2001::7]", 0x1, 0x1, 0xA1FB, "up://[2001::7]/1/1/A1FB"),
    ("my_vin", 0x10000001, 0x2, 0x1A, "up://my_vin/10000001/2/1A"),
    ("*", 0x101, 0xA0, 0xA1FB, "up://*/101/A0/A1FB"),
    ("mcu1", 0xFFFF, 0x1, 0xA1FB, "up://mcu1/FFFF/1/A1FB"),
    ("vcu.my_vin", 0x1A40101, 0x1, 0x8000, "up://vcu.my_vin/1A40101/1/8000"),
    ("vcu.my_vin", 0xFFFF0101, 0x1, 0xA1FB, "up://vcu.my_vin/FFFF0101/1/A1FB"),
    ("vcu.my_vin", 0xFFFFFFFF, 0x1, 0xA1FB, "up://vcu.my_vin/FFFFFFFF/1/A1FB"),
    ("vcu.my_vin", 0x101, 0x0, 0xA1FB, "up://vcu.my_vin/101/0/A1FB"),
    ("vcu.my_vin", 0x101, 0xFF, 0xA1FB, "up://vcu.my_vin/101/FF/A1FB"),
    ("vcu.my_vin", 0x101, 0x1, 0x0, "up://vcu.my_vin/101/1/0"),
    ("vcu.my_vin", 0x101, 0x1, 0xFFFF, "up://vcu.my_vin/101/1/FFFF"),
]

NO_URIS = [
    "",
    "  ",
    "$$",
    "up:",
    "up:/",
    "/",
    "//",
    "//vcu.my_vin",
    "//vcu.my_vin//1/A1FB",
    "//vcu.my_vin/101//A1FB",
    "//vcu.my_vin/101/1/",
    "up://vcu.my_vin/101/1/A/unexpected",
    "xy://vcu.my_vin/101/1/A",
    "//vcu.my_vin/101/1/A?foo=bar",
    "//vcu.my_vin/101/1/A#foo",
    "//VCU.my-vin/101/1/A",
    "//vcu.my-vin:1516/101/1/A",
    "//user:pwd@vcu.my-vin/101/1/A",
    "//[2001:db87aa::8]/101/1/A",
    "//MY_VIN/101/1/A",
    "//reg_based:1516/101/1/A",
    "up://vcu.my-vin/1G1/1/A1FB",
    "/123456789/1/A1FB",
    "up:/101/G/A1FB",
    "//vcu.my-vin/101/123/A1FB",
    "/101/1/G1FB",
    "up://vcu.my-vin/101/1/12345",
]

MATCHES = [
    ("/1/1/A1FB", "/1/1/A1FB"),
    ("/1/1/A1FB", "//*/1/1/A1FB"),
    ("/1/1/A1FB", "/FFFF/1/A1FB"),
    ("/1/1/A1FB", "//*/FFFF/1/A1FB"),
    ("/1/1/A1FB", "/FFFFFFFF/1/A1FB"),
    ("/1/1/A1FB", "//*/FFFFFFFF/1/A1FB"),
    ("/1/1/A1FB", "/1/FF/A1FB"),
    ("/1/1/A1FB", "//*/1/FF/A1FB"),
    ("/1/1/A1FB", "/1/1/FFFF"),
    ("/1/1/A1FB", "//*/1/1/FFFF"),
    ("/1/1/A1FB", "/FFFFFFFF/FF/FFFF"),
    ("/1/1/A1FB", "//*/FFFFFFFF/FF/FFFF"),
    ("/10001/1/A1FB", "/10001/1/A1FB"),
    ("/10001/1/A1FB", "//*/10001/1/A1FB"),
    ("/10001/1/A1FB", "/FFFFFFFF/1/A1FB"),
    ("/10001/1/A1FB", "//*/FFFFFFFF/1/A1FB"),
    ("/10001/1/A1FB", "/FFFFFFFF/FF/FFFF"),
    ("/10001/1/A1FB", "//*/FFFFFFFF/FF/FFFF"),
    ("//vcu.my_vin/1/1/A1FB", "//vcu.my_vin/1/1/A1FB"),
    ("//vcu.my_vin/1/1/A1FB", "//*/1/1/A1FB"),
]

NO_MATCHES = [
    ("/1/1/A1FB", "//mcu1/1/1/A1FB"),
    ("//vcu.my_vin/1/1/A1FB", "//mcu1/1/1/A1FB"),
    ("//vcu/B1A5/1/A1FB", "//vc/FFFFFFFF/FF/FFFF"),
    ("/B1A5/1/A1FB", "//*/25B1/FF/FFFF"),
    ("/B1A5/1/A1FB", "//*/FFFFFFFF/2/FFFF"),
    ("/B1A5/1/A1FB", "//*/FFFFFFFF/FF/ABCD"),
    ("/B1A5/1/A1FB", "/25B1/1/A1FB"),
    ("/B1A5/1/A1FB", "/2B1A5/1/A1FB"),
    ("/10B1A5/1/A1FB", "/40B1A5/1/A1FB"),
    ("/B1A5/1/A1FB", "/B1A5/4/A1FB"),
    ("/B1A5/1/A1FB", "/B1A5/1/90FB"),
]

URI_BYTES = [
    ("", 0x1, 0x1, 0xA1FB, "1001180120fbc302"),
    ("my_vin", 0x10000001, 0x2, 0x1A, "0a066d795f76696e1081808080011802201a"),
    ("*", 0x101, 0xA0, 0xA1FB, "0a012a10810218a00120fbc302"),
    ("mcu1", 0xFFFF, 0x1, 0xA1FB, "0a046d63753110ffff03180120fbc302"),
    ("vcu.my_vin", 0x1A40101, 0x1, 0x8000, "0a0a7663752e6d795f76696e108182900d180120808002"),
    ("vcu.my_vin", 0xFFFF0101, 0x1, 0xA1FB, "0a0a7663752e6d795f76696e108182fcff0f180120fbc302"),
    ("vcu.my_vin", 0xFFFFFFFF, 0x1, 0xA1FB, "0a0a7663752e6d795f76696e10ffffffff0f180120fbc302"),
    ("vcu.my_vin", 0x101, 0x0, 0xA1FB, "0a0a7663752e6d795f76696e10810220fbc302"),
    ("vcu.my_vin", 0x101, 0xFF, 0xA1FB, "0a0a7663752e6d795f76696e10810218ff0120fbc302"),
    ("vcu.my_vin", 0x101, 0x1, 0x0, "0a0a7663752e6d795f76696e1081021801"),
    ("vcu.my_vin", 0x101, 0x1, 0xFFFF, "0a0a7663752e6d795f76696e108102180120ffff03"),
]

UUIDS = [(0x0000000000017000, 0x8010101010101A1A, "00000000-0001-7000-8010-101010101a1a")]

NO_UUIDS = [
    *(f"00000000-0001-{version:x}000-8000-0000000000ab" for version in range(16) if version != 7),
    *(f"00000000-0001-7000-{variant:x}000-0000000000ab" for variant in (0, 4, 12)),
]

UUID_BYTES = [
    (0x0000000000017000, 0x8010101010101A1A, "090070010000000000111a1a101010101080"),
    (0xFFFFFFFFFFFF7000, 0x8010FFAABB997700, "090070ffffffffffff11007799bbaaff1080"),
]
