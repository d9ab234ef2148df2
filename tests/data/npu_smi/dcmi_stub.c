/* A libdcmi.so with the calls of the vendor's reference, compiled by tests/device_stubs.py.

   GENERATION 1: two cards of CHIPS_PER_CARD chips, called by (card, chip); the second
   generation of calls is not there. GENERATION 2: four chips, called by logical id; the
   first generation refuses, as a 950 does. */
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = -8255, FAILED = -8005 };

typedef struct {
    unsigned long long total_mb;
    unsigned mhz;
    unsigned long long used_mb;
    int celsius;
    unsigned bandwidth;
} Hbm;

static int hbm(int chip, Hbm *info) {
    memset(info, 0, sizeof *info);
    info->total_mb = 65536;
    info->used_mb = 3318 + chip;
    info->celsius = 40;
    info->bandwidth = 25;
    return OK;
}

#if GENERATION == 1
#ifndef CHIPS_PER_CARD
#define CHIPS_PER_CARD 1
#endif
int dcmi_init(void) { return OK; }
int dcmi_get_card_list(int *count, int *cards, int room) {
    *count = 2;
    cards[0] = 0;
    cards[1] = 1;
    return OK;
}
int dcmi_get_device_id_in_card(int card, int *chips, int *mcu, int *cpu) {
    *chips = CHIPS_PER_CARD;
    *mcu = CHIPS_PER_CARD;
    *cpu = -1;
    return OK;
}
int dcmi_get_device_logic_id(int *logical, int card, int chip) {
    *logical = card * CHIPS_PER_CARD + chip;
    return OK;
}
int dcmi_get_device_utilization_rate(int card, int chip, int what, unsigned *percent) {
    *percent = what == 2 ? 37 : 0;
    return OK;
}
int dcmi_get_device_power_info(int card, int chip, int *tenths_w) {
    if (chip > 0) return NOT_SUPPORTED; /* the card's power is its first chip's */
    *tenths_w = 2113;
    return OK;
}
int dcmi_get_device_temperature(int card, int chip, int *celsius) {
    if (card == 1) return FAILED;
    *celsius = 43;
    return OK;
}
int dcmi_get_device_health(int card, int chip, unsigned *health) { *health = card == 1 ? 2 : 0; return OK; }
int dcmi_get_device_hbm_info(int card, int chip, Hbm *info) { return hbm(card * CHIPS_PER_CARD + chip, info); }
#else
int dcmi_init(void) { return NOT_SUPPORTED; }
int dcmiv2_init(void) { return OK; }
int dcmiv2_get_device_list(int *list, int *count, int room) {
    *count = 4;
    for (int i = 0; i < 4; i++) list[i] = i;
    return OK;
}
int dcmiv2_get_device_utilization_rate(int chip, int what, unsigned *percent) { *percent = 99; return OK; }
int dcmiv2_get_device_power_info(int chip, int *tenths_w) { *tenths_w = 2057; return OK; }
int dcmiv2_get_device_temperature(int chip, int *celsius) { *celsius = 71; return OK; }
int dcmiv2_get_device_health(int chip, unsigned *health) { *health = 0; return OK; }
int dcmiv2_get_device_hbm_info(int chip, Hbm *info) { return hbm(chip, info); }
#endif
