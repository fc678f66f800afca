"""Records of sshd and of a web server as columns.

Both take what ``spark.read`` or ``spark.readStream`` gave, and keep the lines they understand.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

_SYSLOG = r"^(\w{3} +\d+ [\d:]{8}|\d{4}-\d\d-\d\dT\S+) (\S+) ([^ \[:]+)(?:\[(\d+)\])?: (.*)$"
_REPEATED = r"^message repeated (\d+) times: \[ "
_LOGIN = r"(?:^|\[ )(Failed|Accepted) (\S+) for (?:invalid user )?(.*) from (\S+) port \d+"
_WEB = (
    r"^\[\w{3} (\w{3} \d+ [\d:]{8})(?:\.\d+)? (\d{4})\] \[(?:\w*:)?(\w+)\](?: \[pid [^\]]+\])?"
    r"(?: \[client ([^\] ]+?)(?::\d+)?\])? (.*)$"
)


def logins(records: DataFrame) -> DataFrame:
    """Return one row a login that sshd has let in or not, also of those it tells of in one line.

    Returns:
        Columns ``time``, ``host``, ``outcome`` (Failed or Accepted), ``method``, ``user`` and
        ``address``.
    """
    line = sql.col("value").cast("string")
    said = sql.regexp_extract(line, _SYSLOG, 5)
    times = sql.nullif(sql.regexp_extract(said, _REPEATED, 1), sql.lit("")).cast("int")
    return (
        records.select(
            _syslog_time(sql.regexp_extract(line, _SYSLOG, 1), sql.col("timestamp")).alias("time"),
            sql.regexp_extract(line, _SYSLOG, 2).alias("host"),
            *(
                sql.regexp_extract(said, _LOGIN, number).alias(name)
                for number, name in enumerate(("outcome", "method", "user", "address"), 1)
            ),
            sql.explode(sql.sequence(sql.lit(1), sql.coalesce(times, sql.lit(1)))).alias("time_of"),
        )
        .drop("time_of")
        .where("outcome != ''")
        .where("time IS NOT NULL")
    )


def web_errors(records: DataFrame) -> DataFrame:
    """Return one row a line of Apache's error log.

    Returns:
        Columns ``time``, ``level``, ``client`` (null where there was none) and ``message``.
    """
    line = sql.col("value").cast("string")
    time = sql.concat_ws(" ", *(sql.regexp_extract(line, _WEB, group) for group in (2, 1)))
    return records.select(
        sql.try_to_timestamp(_one_blank(time), sql.lit("yyyy MMM d HH:mm:ss")).alias("time"),
        sql.regexp_extract(line, _WEB, 3).alias("level"),
        sql.nullif(sql.regexp_extract(line, _WEB, 4), sql.lit("")).alias("client"),
        sql.regexp_extract(line, _WEB, 5).alias("message"),
    ).where("time IS NOT NULL")


def _syslog_time(text: Column, appended: Column) -> Column:
    """Read a time of syslog. The old kind has no year: the last such day before it was appended."""
    moments = [
        sql.try_to_timestamp(
            sql.concat_ws(" ", (sql.year(appended) - back).cast("string"), _one_blank(text)),
            sql.lit("yyyy MMM d HH:mm:ss"),
        )
        for back in (0, 1)
    ]
    this_year = sql.when(moments[0] <= appended + sql.expr("INTERVAL 1 DAY"), moments[0])
    return sql.coalesce(sql.try_to_timestamp(text), this_year, moments[1])


def _one_blank(text: Column) -> Column:
    return sql.regexp_replace(text, " +", " ")
