use super::*;

fn zone(name: &str) -> TimeZone {
    super::super::plan::zone(name).unwrap()
}

/// Returns the next times of a schedule, as local times with their offsets.
fn times(schedule: &str, after: &str, zone_name: &str, count: usize) -> Vec<String> {
    let (schedule, zone): (Schedule, _) = (schedule.parse().unwrap(), zone(zone_name));
    let mut at: Timestamp = after.parse().unwrap();
    let mut times = Vec::new();
    for _ in 0..count {
        let Some(next) = schedule.next(at, &zone) else {
            break;
        };
        at = next;
        let local = at.to_zoned(zone.clone());
        times.push(local.strftime("%m-%d %H:%M:%S%:z").to_string());
    }
    times
}

fn utc(schedule: &str, count: usize) -> Vec<String> {
    // A Thursday.
    let times = times(schedule, "2026-01-01T00:00:00Z", "UTC", count);
    times.iter().map(|it| it.replace("+00:00", "")).collect()
}

/// Proves cronjob/schedule.
#[test]
fn fields_are_lists_of_ranges_and_steps() {
    assert_eq!(
        utc("*/20 * * * *", 3),
        ["01-01 00:20:00", "01-01 00:40:00", "01-01 01:00:00"]
    );
    assert_eq!(
        utc("5,50-51 3 * * *", 3),
        ["01-01 03:05:00", "01-01 03:50:00", "01-01 03:51:00"]
    );
    assert_eq!(
        utc("30 20/2 * * ?", 3),
        ["01-01 20:30:00", "01-01 22:30:00", "01-02 20:30:00"]
    );
    assert_eq!(
        utc("0 0 1 FEB-apr/2 *", 2),
        ["02-01 00:00:00", "04-01 00:00:00"]
    );
    assert_eq!(
        utc("0 12 * * mon-Tue", 2),
        ["01-05 12:00:00", "01-06 12:00:00"]
    );
    // If both day fields are restricted, either one may match.
    assert_eq!(
        utc("0 0 10 * 0", 3),
        ["01-04 00:00:00", "01-10 00:00:00", "01-11 00:00:00"]
    );
    assert_eq!(utc("0 0 29 2 *", 1), ["02-29 00:00:00"]);
    assert_eq!(utc("59 23 31 2 *", 1), Vec::<String>::new());
}

/// Proves cronjob/schedule.
#[test]
fn descriptors_are_abbreviations() {
    for (descriptor, first) in [
        ("@yearly", "01-01 00:00:00"),
        ("@annually", "01-01 00:00:00"),
        ("@monthly", "02-01 00:00:00"),
        ("@weekly", "01-04 00:00:00"),
        ("@daily", "01-02 00:00:00"),
        ("@midnight", "01-02 00:00:00"),
        ("@hourly", "01-01 01:00:00"),
        ("@every 1h30m", "01-01 01:30:00"),
        ("@every 10ms", "01-01 00:00:01"),
    ] {
        assert_eq!(utc(descriptor, 1), [first], "{descriptor}");
    }
}

/// Proves cronjob/schedule.
#[test]
fn invalid_schedules_are_explained() {
    for (text, why) in [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        (
            "9-3 * * * *",
            "beginning of range (9) beyond end of range (3): 9-3",
        ),
        (
            "*/0 * * * *",
            "step of range should be a positive number: */0",
        ),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", "failed to parse int from x"),
        ("@often", "unrecognized descriptor: @often"),
    ] {
        assert_eq!(text.parse::<Schedule>(), Err(why.to_owned()), "{text}");
    }
    assert!("@every soon".parse::<Schedule>().is_err());
}

/// Proves cronjob/schedule.
#[test]
fn schedules_follow_their_time_zone() {
    assert_eq!(
        times("0 9 * * *", "2026-03-28T00:00:00Z", "Europe/Berlin", 2),
        ["03-28 09:00:00+01:00", "03-29 09:00:00+02:00"]
    );
    // 02:30 does not exist on March 8 and 01:30 exists twice on November 1.
    assert_eq!(
        times("30 2 * * *", "2026-03-07T12:00:00Z", "America/New_York", 1),
        ["03-09 02:30:00-04:00"]
    );
    assert_eq!(
        times("30 1 * * *", "2026-11-01T00:00:00Z", "America/New_York", 2),
        ["11-01 01:30:00-04:00", "11-01 01:30:00-05:00"]
    );
}
